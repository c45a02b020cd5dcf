# The server. Any Debian 12 (or newer) image will do as base, python:3.11-slim too: --build-arg BASE_IMAGE=...
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${BASE_IMAGE} AS build
# See deploy/certificates/README.md; nothing of this stage but the environment reaches the image.
COPY deploy/certificates/ /usr/local/share/ca-certificates/
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
    && update-ca-certificates \
    && rm -rf /var/lib/apt/lists/*
# Without caches: they would take as much of the layer as what is installed.
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 UV_NO_CACHE=1
WORKDIR /build
COPY scripts/install.sh scripts/uv.sh scripts/python.sh scripts/
COPY requirements/ requirements/
RUN python3 -m venv /opt/sandbox-server \
    && scripts/install.sh /opt/sandbox-server/bin/python --require-hashes -r requirements/server.txt \
    && scripts/install.sh /opt/sandbox-server/bin/python --require-hashes --no-deps \
       --target /opt/sandbox-server/share/swebench-4.1.0 -r requirements/swebench4.txt
COPY pyproject.toml LICENSE README.md ./
COPY sandbox_server/ sandbox_server/
RUN /opt/sandbox-server/bin/pip install --no-deps --no-build-isolation . \
    && cd / && /opt/sandbox-server/bin/python -c "from sandbox_server.ui.render import warm; warm().result()" \
    && chmod -R a+rX /opt/sandbox-server/lib/python3*/site-packages/sandbox_server/ui/templates

FROM ${BASE_IMAGE}
# git, and the authorities of the servers that repositories are fetched from.
RUN (command -v python3 && command -v git && [ -e /etc/ssl/certs/ca-certificates.crt ]) >/dev/null \
    || (apt-get update && apt-get install -y --no-install-recommends ca-certificates git python3 \
        && rm -rf /var/lib/apt/lists/*)
COPY --from=build /opt/sandbox-server /opt/sandbox-server
COPY deploy/entrypoint.sh deploy/healthcheck.py /usr/local/lib/sandbox-server/
ENV PATH=/opt/sandbox-server/bin:$PATH PYTHONUNBUFFERED=1 \
    SANDBOX_HOST=0.0.0.0 SANDBOX_PORT=5000 SANDBOX_DATA_DIR=/data
VOLUME /data
EXPOSE 5000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "/usr/local/lib/sandbox-server/healthcheck.py"]
ENTRYPOINT ["/usr/local/lib/sandbox-server/entrypoint.sh"]
CMD ["serve"]
