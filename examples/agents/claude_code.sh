#!/bin/sh
# Claude Code as the agent of a session: examples/agents/claude_code.sh [INSTANCE] [URL]
# Needs claude (npm install -g @anthropic-ai/claude-code) and a model: ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL of your own,
# e.g. `python3 examples/scripted_policy.py` with ANTHROPIC_BASE_URL=http://127.0.0.1:8000 ANTHROPIC_API_KEY=none.
# Claude Code runs here, outside of the sandbox; the session's tools are all that it gets.
set -eu
instance=${1:-samples__ledger-12} url=${2:-http://localhost:5000} key=${SANDBOX_API_KEY:-none}

ask() { curl -fsS -H "X-API-Key: $key" "$url$1" -d "$2"; }
field() { python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }

sid=$(ask /start_instance "{\"instance_hash\": \"$instance\"}" | field sid)
problem=$(curl -fsS -H "X-API-Key: $key" "$url/v1/instances/$instance" | field problem_statement)
token=$(ask "/v1/sessions/$sid/tokens" "" | field token) # opens this session's tools alone
config=$(mktemp)
trap 'rm -f "$config"' EXIT
cat >"$config" <<END
{"mcpServers": {"sandbox": {"type": "http", "url": "$url/mcp/sessions/$sid", "headers": {"X-API-Key": "$token"}}}}
END
# --tools "": none of its own, which would act on this machine. The variable: it waits for the session's tools, which
# the first request to the model would lack otherwise.
MCP_CONNECTION_NONBLOCKING=0 claude -p "$problem" --mcp-config "$config" --strict-mcp-config --tools "" --allowedTools mcp__sandbox || echo "claude: $?" >&2
[ "$(curl -fsS -H "X-API-Key: $key" "$url/v1/sessions/$sid/actions")" != "[]" ] ||
    echo "claude called no tool; if it could not reach them, leave this rollout out" >&2
ask /postprocess "{\"sid\": \"$sid\"}" >/dev/null
ask /compute_reward "{\"sid\": \"$sid\"}"
