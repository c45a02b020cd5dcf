#!/bin/sh
# Codex as the agent of a session: examples/agents/codex.sh [INSTANCE] [URL]
# Needs codex (npm install -g @openai/codex) and a model: MODEL at MODEL_URL, which speaks OpenAI's responses, e.g.
# `python3 examples/scripted_policy.py`, whose address is the default.
# Codex runs here, outside of the sandbox; the session's tools are all that act.
set -eu
instance=${1:-samples__ledger-12} url=${2:-http://localhost:5000} key=${SANDBOX_API_KEY:-none}

ask() { curl -fsS -H "X-API-Key: $key" "$url$1" -d "$2"; }
field() { python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }

sid=$(ask /start_instance "{\"instance_hash\": \"$instance\"}" | field sid)
problem=$(curl -fsS -H "X-API-Key: $key" "$url/v1/instances/$instance" | field problem_statement)
SANDBOX_TOKEN=$(ask "/v1/sessions/$sid/tokens" "" | field token) # opens this session's tools alone
CODEX_HOME=$(mktemp -d)
export SANDBOX_TOKEN CODEX_HOME
trap 'rm -rf "$CODEX_HOME"' EXIT
# shell_tool: its own would act on this machine. required: without it, it plays on with no tools if it cannot reach them.
# default_tools_approval_mode: else a call waits for a person, or is refused.
cat >"$CODEX_HOME/config.toml" <<END
model = "${MODEL:-scripted}"
model_provider = "own"
web_search = "disabled"
features = { shell_tool = false, multi_agent = false, goals = false }

[model_providers.own]
name = "own"
base_url = "${MODEL_URL:-http://127.0.0.1:8000/v1}"

[mcp_servers.sandbox]
url = "$url/mcp/sessions/$sid"
bearer_token_env_var = "SANDBOX_TOKEN"
required = true
default_tools_approval_mode = "approve"
tool_timeout_sec = 320
END
(cd "$CODEX_HOME" && codex exec --skip-git-repo-check "$problem" </dev/null) || echo "codex: $?" >&2
ask /postprocess "{\"sid\": \"$sid\"}" >/dev/null
ask /compute_reward "{\"sid\": \"$sid\"}"
