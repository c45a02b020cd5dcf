"""The key of a certificate; apart from the table, for modules that need no SQL."""

from dataclasses import astuple, dataclass

from sandbox_server.catalogue.instance import TaskInstance


@dataclass(frozen=True, slots=True)
class CertificateKey:
    """Identifies a certificate. A changed row, or an image repaired under the same tag, has another certificate."""

    instance_id: str
    row_sha256: str
    image_digest: str

    @classmethod
    def of(cls, instance: TaskInstance, image_digest: str) -> "CertificateKey":
        """The key of `instance` on the image with this digest."""
        return cls(instance.instance_id, instance.row_sha256, image_digest)

    def __str__(self) -> str:
        return ":".join(astuple(self))
