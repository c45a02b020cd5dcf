"""What an agent leaves is what its tests see, also where .gitattributes convert files: line ends, encodings, `$Id$`."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sandbox_server.catalogue.instance import ScriptGrader
from sandbox_server.scoring.captures import Captures
from tests.conformance.grading.calc_bench import Bench
from tests.live.test_patches import TREE

_BASE = r"""set -e
git config user.name Ada; git config user.email ada@example.org
printf 'a\r\nb\r\n' > kept.auto; printf 'x\r\ny\r\n' > plain.txt
git add -A; git commit -qm 'line ends that no attribute knows yet'
cat > .gitattributes <<'END'
*.bat text eol=crlf
*.u16 text working-tree-encoding=UTF-16LE-BOM
*.id ident
*.auto text=auto
*.lfs filter=lfs diff=lfs merge=lfs -text
END
printf 'one\r\ntwo\r\nthree\r\n' > run.bat
printf '\xff\xfeo\0n\0e\0\n\0' > text.u16
printf '# $Id$\nline\n' > mark.id
printf 'a\r\nb\r\n' > new.auto
echo 'oid 1' > big.lfs
: > empty; printf 'no newline' > bare; echo run > 'to"ol ü'; chmod +x 'to"ol ü'; ln -s bare link; mkdir module
git add -A; git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,module
git commit -qm odd
rm run.bat mark.id text.u16; git checkout -q -- run.bat mark.id text.u16
git config --unset user.name; git config --unset user.email
"""
_DEED = r"""set -e
sed -i 's/two/2/' run.bat; printf 'x\ny\n' > unix.bat
printf 't\0w\0o\0\n\0' >> text.u16
sed -i 's/line/& more/' mark.id
printf 'c\r\n' >> kept.auto; printf 'c\n' >> new.auto; sed -i 's/\r//' plain.txt; echo more >> big.lfs
chmod -x 'to"ol ü'; git mv 'to"ol ü' $'new\nname'; rm empty link; ln -s run.bat link; : > empty2; printf x >> bare
"""


async def test_a_patch_gives_the_agents_files_byte_for_byte(bench: Bench) -> None:
    """git refused such patches, since it read other files than were compared: a right fix was `patch_failed`."""
    instance = bench.instance(
        grader=ScriptGrader(command="true"), box={"setup_commands": (_BASE,)}, test_patch="", gold_patch=""
    )
    deadline = datetime.now(UTC) + timedelta(minutes=5)
    spec = replace(await bench.workspaces.spec(instance), sid="4711", deadline=deadline, with_shell=False)
    captures = Captures(bench.runtime, timeout_s=60, max_bytes=1 << 20, cpu_shares=256)
    agent = await bench.runtime.create(spec)
    try:
        done = await agent.exec(["bash", "-c", _DEED], timeout_s=30, cwd="/testbed", merge_streams=True)
        assert done.exit_code == 0, done.stdout.text()
        left = await agent.exec(["python3", "-c", TREE], timeout_s=30, cwd="/testbed")
        diff, cause = await captures.files(agent.container_id, instance)
        assert diff and not cause
        async with bench.attempts().patched(instance, diff) as patched:
            assert patched.failure is None, patched.failure
            seen = await patched.container.sandbox.exec(["python3", "-c", TREE], timeout_s=30, cwd="/testbed")
            assert json.loads(seen.stdout.text()) == json.loads(left.stdout.text())
            status = await patched.container.sandbox.exec(["ls", ".git/info"], timeout_s=30, cwd="/testbed")
            assert "attributes" not in status.stdout.text(), "what the tests' own git does is changed"
    finally:
        await bench.runtime.remove(agent.container_id)
        await captures.close()
