"""Which files count as the test runner's own, and what becomes of them."""

import time

import pytest

from sandbox_server.catalogue.instance import SandboxSpec, ScriptGrader, SwebenchGrader, SweproGrader, TaskInstance
from sandbox_server.grading.guard import screen

_EVAL = """cat <<'EOF'
it's
EOF
: '>>>>> Start Test Output'
PYTHONWARNINGS='ignore' bin/test -C --verbose sympy/core/tests/test_a.py
: '>>>>> End Test Output'
"""


def new_file(path: str, line: str = "x = 1") -> bytes:
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\nindex 0000000..1111111\n"
    return f"{head}--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n".encode()


def link(path: str, to: str) -> bytes:
    head = f"diff --git a/{path} b/{path}\nnew file mode 120000\nindex 0000000..1111111\n--- /dev/null\n+++ b/{path}\n"
    return f"{head}@@ -0,0 +1 @@\n+{to}\n\\ No newline at end of file\n".encode()


def edit(path: str, line: str = "b") -> bytes:
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+{line}\n".encode()


def instance(gold: bytes = b"", test_patch: bytes = b"") -> TaskInstance:
    return TaskInstance(
        instance_id="guard__guard-1",
        repo="guard/guard",
        sandbox=SandboxSpec(images=("unused",)),
        grader=ScriptGrader(command="true"),
        gold_patch=gold.decode(),
        test_patch=test_patch.decode(),
    )


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py",
        "deep/er/conftest.py",
        "pytest.ini",
        "tox.ini",
        "setup.cfg",
        "setup.py",
        "pyproject.toml",
        "sitecustomize.py",
        "src/usercustomize.py",
        "evil.pth",
        *("spec/spec_helper.rb", "Gemfile", "Rakefile", "vendor/bin/phpunit", "lib/vendor/autoload.php"),
        "pytest.py",
        "tests/unittest.py",
        "_pytest/__init__.py",
        "json.py",
        ".git/hooks/post-checkout",
        "sub/.GIT/config",
        "web/package.json",
        ".yarnrc.yml",
        ".cargo/config.toml",
        ".mvn/jvm.config",
        "phpunit.xml.dist",
        "pytest/__init__.pyc",
        "usercustomize/__init__.py",
        "src/sitecustomize/__init__.abi3.so",
        "evil.egg-info/entry_points.txt",
        ".venv/bin/activate",
        "src/node_modules/chai/index.js",
        ".local/lib/python3.11/site-packages/pytest/x.py",
        "core/pom.xml",
        "GNUmakefile",
        "build.xml",
        "babel.config.json",
        "web/.babelrc",
        "postcss.config.cjs",
        "src/setupTests.ts",
        "buildSrc/src/main/groovy/Plugin.groovy",
        "gradle/wrapper/gradle-wrapper.properties",
        "lib/src/test/resources/junit-platform.properties",
        "rust-toolchain",
        "rust-toolchain.toml",
        "go.work",
    ],
)
def test_a_new_runner_file_is_left_out(path: str) -> None:
    """Each of these can make failing tests pass; graded unseen it buys a reward."""
    screened = screen(new_file("src/fix.py") + new_file(path) + edit("src/mod.py"), instance(), "strip")
    assert screened.runner_files == screened.stripped == (path,)
    assert screened.patch == new_file("src/fix.py") + edit("src/mod.py")


@pytest.mark.parametrize(
    "path",
    [
        "src/pkg/json.py",
        "src/_pytest/skipping.py",
        "_pytest/skipping.py",
        "tests/test_conftest.py",
        "test.py",
        "docs/pytest.ini.rst",
        "lib/coverage.py",
        "pytest.txt",
        ".gitignore",
        *(".github/workflows/ci.yml", "vendor/github.com/a/b.go", "lib/vendor/six.py"),
    ],
)
def test_ordinary_files_are_kept(path: str) -> None:
    """A false alarm costs an honest fix its reward."""
    screened = screen(new_file(path), instance(), "strip")
    assert screened.patch == new_file(path)
    assert screened.runner_files == ()


def test_existing_modules_of_a_runner_may_be_edited() -> None:
    """pytest's own repository is a benchmark: its fixes edit pytest."""
    patch = edit("pytest.py") + edit("_pytest/__init__.py")
    assert screen(patch, instance(), "strip").runner_files == ()


def test_a_shadowing_package_goes_as_a_whole() -> None:
    """Half a package left behind would still be imported as a namespace."""
    screened = screen(new_file("pytest/__init__.py") + new_file("pytest/deep/x.py"), instance(), "strip")
    assert screened.patch == b""
    assert screened.stripped == ("pytest/__init__.py", "pytest/deep/x.py")


@pytest.mark.parametrize("path", ["pytest", "tests/unittest", "src/usercustomize"])
def test_a_link_can_shadow_a_runner(path: str) -> None:
    """Its name has no suffix and its package lies elsewhere: a fake pytest made every test pass."""
    package = new_file("fine/__init__.py")
    screened = screen(package + link(path, "fine"), instance(), "strip")
    assert (screened.patch, screened.stripped) == (package, (path,))
    assert screen(link("docs/pytest", "fine"), instance(), "strip").stripped == ()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"grader": ScriptGrader(command="cd . && bash ./run_tests.sh -v")}, "run_tests.sh"),
        ({"grader": ScriptGrader(command="pytest -q /testbed/tests/test_a.py::test_x 'open")}, "tests/test_a.py"),
        ({"grader": SwebenchGrader(eval_script=_EVAL, log_parser="parse_log_sympy")}, "bin/test"),
        ({"grader": SweproGrader(run_script="", parser_script="", selected_test_files=("spec/a.js",))}, "spec/a.js"),
        ({"sandbox": SandboxSpec(images=("unused",), activate=". env/bin/activate && ./tool")}, "env/bin/activate"),
    ],
)
def test_what_the_tests_are_started_by_is_the_runners(fields: dict[str, object], path: str) -> None:
    """Rows whose tests lie in the repository, as eval_cmd's do: an `exit 0` in them was resolved."""
    task = instance().model_copy(update=fields)
    screened = screen(edit(path) + edit("src/mod.py"), task, "strip")
    assert (screened.patch, screened.stripped) == (edit("src/mod.py"), (path,))
    assert screen(edit(path), task.model_copy(update={"gold_patch": edit(path).decode()}), "strip").stripped == ()
    assert screen(edit(path), task.model_copy(update={"files": {path: ""}}), "strip").stripped == ()


def test_tests_that_are_placed_over_the_patch_may_be_edited() -> None:
    """An honest edit of a test would be left out and reported as one of the runner's."""
    grader = SweproGrader(
        run_script="", parser_script="", selected_test_files=("spec/a.js",), restore_tests="git checkout x -- spec/a.js"
    )
    assert screen(edit("spec/a.js"), instance().model_copy(update={"grader": grader}), "strip").stripped == ()


def test_the_product_that_a_command_runs_may_be_edited() -> None:
    """It is what the task is about."""
    command = "python main.py < in.txt | diff - tests/out.txt"
    task = instance().model_copy(update={"grader": ScriptGrader(command=command)})
    assert screen(edit("main.py") + edit("contest.py"), task, "strip").stripped == ()


def test_a_rename_to_a_runner_file_is_left_out() -> None:
    """The new name has no `+++` line when nothing else changed."""
    patch = b"diff --git a/src/a.py b/conftest.py\nsimilarity index 100%\nrename from src/a.py\nrename to conftest.py\n"
    assert screen(patch, instance(), "strip").patch == b""


@pytest.mark.parametrize("whose", ["gold", "test_patch"])
def test_what_gold_or_the_tests_touch_is_no_runner_file(whose: str) -> None:
    """Where the task is to change setup.cfg, changing it is the task."""
    allowed = instance(**{whose: edit("setup.cfg")})
    screened = screen(edit("setup.cfg") + edit("tox.ini"), allowed, "strip")
    assert screened.patch == edit("setup.cfg")
    assert screened.runner_files == ("tox.ini",)


@pytest.mark.parametrize("policy", ["flag", "refuse"])
def test_other_policies_report_and_leave_the_patch_alone(policy: str) -> None:
    """`flag` grades what was sent; only the report differs."""
    patch = new_file("conftest.py")
    screened = screen(patch, instance(), policy)  # type: ignore[arg-type]  # parametrised by its values
    assert (screened.patch, screened.runner_files, screened.stripped) == (patch, ("conftest.py",), ())


@pytest.mark.parametrize(
    "path",
    [
        *("a_test.go", "deep/b_test.go", "tests/c.rs", "a.test.js", "src/b-spec.tsx", "x/__tests__/c.mjs", "test/a.js"),
        *("lib/src/test/java/a/ATest.java", "tests/Unit/ATest.php", "spec/a/b_spec.rb", "test/test_a.rb", "b_test.rb"),
    ],
)
def test_new_tests_of_ones_own_are_left_out(path: str) -> None:
    """A right fix with a test of a hidden one's name did not build in Go; a new package's tests passed as the row's."""
    fix, own = edit("src/fix.go"), new_file(path)
    screened = screen(fix + own, instance(), "strip")
    assert (screened.patch, screened.stripped, screened.runner_files) == (fix, (path,), ())
    assert screen(fix + own, instance(test_patch=new_file(path)), "strip").patch == fix + own  # replaced anyway
    for policy in ("flag", "refuse"):
        assert screen(fix + own, instance(), policy).patch == fix + own  # type: ignore[arg-type]  # one of the policies
    changed = edit("kept_test.go")
    assert screen(fix + changed + own, instance(), "strip").patch == fix + changed + own
    assert screen(fix + changed + own, instance(test_patch=changed), "strip").patch == fix + changed


@pytest.mark.parametrize("path", ["a.go", "tests/deep/common.rs", "src/latest.js", "testing/a.ts", "tests/test_a.py"])
def test_what_is_no_test_or_has_its_file_in_its_name_is_kept(path: str) -> None:
    assert screen(new_file(path), instance(), "strip").patch == new_file(path)


@pytest.mark.parametrize(
    ("path", "line", "name"),
    [
        ("a_test.go", "func TestAdd(t *testing.T) {", "TestAdd/one"),
        ("a_test.go", "func (s *Suite) TestAdd() {", "TestAdd"),
        ("tests/a.rs", "fn adds() {", "deep::adds"),
        ("a.test.js", "  it('adds \\'all\\'', () => {", "calc adds 'all'"),
        ("spec/calc_spec.rb", "  it 'adds' do", "Calc adds"),
        ("__tests__/a.ts", "test.only(`adds`, async () => {", "adds"),
        ("src/test/java/a/CalcTest.java", "    public void adds() {", "a.CalcTest > adds()"),
        ("src/test/java/a/OtherTest.java", "    void adds() {", "adds"),
    ],
)
def test_an_existing_test_file_that_gets_a_test_of_a_hidden_ones_name_is_restored(
    path: str, line: str, name: str
) -> None:
    """The log has one line for both names, so the confirming run saw a false test pass: a right fix was `tampered`."""
    task = instance().model_copy(update={"fail_to_pass": (name,)})
    fix, other = edit("src/fix.go"), edit(path, line.replace("dds", "dopts").replace("Add", "Adopt"))
    assert screen(fix + edit(path, line), task, "strip").stripped == (path,)
    assert screen(fix + other, task, "strip").patch == fix + other
    new = new_file("new_test.go")
    assert screen(fix + new + edit(path, line), task, "strip").patch == fix
    assert screen(fix + new + other, task, "strip").stripped == ()  # what stays may need the new one
    assert screen(fix + new_file(path, line) + edit("c_test.go"), task, "strip").stripped == (path,)
    assert screen(fix + edit(path, line), instance(), "strip").stripped == ()


def test_a_failing_test_that_is_in_no_test_patch_cannot_be_edited() -> None:
    """The repository has it already: emptied by the patch, it passed, and nothing was fixed."""
    task = instance().model_copy(update={"fail_to_pass": ("tests/test_a.py::T::test_b[x - y]", "lib.py")})
    fix, kept, test = edit("lib.py"), edit("other_tests/test_kept.py"), edit("tests/test_a.py")
    screened = screen(fix + kept + test, task, "strip")
    assert (screened.patch, screened.stripped, screened.runner_files) == (fix + kept, ("tests/test_a.py",), ())
    moved = b"diff --git a/tests/test_a.py b/old.py\nsimilarity index 100%\nrename from tests/test_a.py\n"
    moved += b"rename to old.py\n"
    assert screen(fix + moved, task, "strip").patch == fix
    for placed in ({"test_patch": test.decode()}, {"files": {"tests/test_a.py": ""}}):
        assert screen(fix + test, task.model_copy(update=placed), "strip").stripped == ()


def test_tests_of_the_same_name_in_another_class_stay() -> None:
    """Logs name them apart, and other tests may not build without what the patch changes there."""
    task = instance().model_copy(update={"fail_to_pass": ("a.CalcTest > adds",)})
    patch = edit("src/test/java/a/OtherTest.java", "    void adds() {")
    assert screen(patch, task, "strip").patch == patch


@pytest.mark.parametrize("text", ["func(" * 100_000, "it('" * 100_000, "void " * 100_000, "test.a" * 100_000])
def test_own_tests_are_looked_for_in_linear_time(text: str) -> None:
    """The patch is a policy's."""
    task = instance().model_copy(update={"fail_to_pass": ("adds",)})
    began = time.process_time()
    screen(b"".join(edit(path, text) for path in ("a_test.go", "a.test.js")), task, "strip")
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tests/test_a.py::T::test_b[x - y]", "tests/test_a.py"),
        ("test_b (forms.tests.Tests)", "tests/forms/tests.py"),
        ("test_b (forms.tests.Tests.test_b)", "tests/forms/tests/__init__.py"),
        ("test_b (test_a.T)", "test_a.py"),
        ("tests/test_a.py::test_b", "lib/tests/test_a.py"),
        ("./tests/test_a.py::test_b", "tests/test_a.py"),
    ],
)
def test_a_test_that_must_go_on_passing_cannot_be_edited(name: str, path: str) -> None:
    """With its P2P tests emptied, a patch that broke what they test was resolved, and confirmed."""
    task = instance().model_copy(update={"pass_to_pass": (name,)})
    fix = edit("lib.py") + edit("forms/models.py") + edit("my_tests.py") + edit("other/tests/test_kept.py")
    assert screen(fix + edit(path), task, "strip").stripped == (path,)
    assert screen(fix + edit(path), task.model_copy(update={"test_patch": edit(path).decode()}), "strip").stripped == ()
    assert screen(fix + edit(path), task, "flag").stripped == ()


@pytest.mark.parametrize(
    ("names", "test_patch", "folder"),
    [
        (("tests/deep/test_a.py::test_b",), (), "tests"),
        (("src/lib/tests/test_a.py::test_b",), (), "src/lib/tests"),
        (("testing/code/test_a.py::TestB::test_b",), (), "testing"),
        (("unit_tests/unittest_a.py::test_b",), (), "unit_tests"),
        (("test_b (forms_tests.tests.Tests)",), ("tests/forms_tests/tests/test_a.py",), "tests"),
    ],
)
def test_what_lies_beside_the_tests_cannot_be_changed(
    names: tuple[str, ...], test_patch: tuple[str, ...], folder: str
) -> None:
    """A helper or expected data of P2P tests alone, changed by a patch that broke something, hid what it broke."""
    text = b"".join(map(edit, test_patch)).decode()
    task = instance().model_copy(update={"pass_to_pass": names, "test_patch": text})
    fix, new = edit("lib.py"), new_file(f"{folder}/test_new.py")
    assert screen(fix + new, task, "strip").patch == fix + new
    for path in ("helper.py", "data/expected.json", "deep/base.py"):
        screened = screen(fix + edit(f"{folder}/{path}") + new, task, "strip")  # the new test may need what changed
        assert screened.stripped == tuple(sorted((f"{folder}/{path}", f"{folder}/test_new.py")))
        assert screened.patch == fix
    for shadow in ("helper/__init__.py", "helper.cpython-311.so", "__init__.py"):
        assert screen(fix + new_file(f"{folder}/{shadow}"), task, "strip").patch == fix
    deleted = edit(f"{folder}/helper.py").replace(b"+++ b/", b"deleted file mode 100644\n+++ b/")
    assert screen(fix + deleted + link(folder, "/tmp/mine"), task, "strip").patch == fix
    gold = task.model_copy(update={"gold_patch": edit(f"{folder}/support.py").decode()})
    assert screen(fix + edit(f"{folder}/other.py"), gold, "strip").stripped == ()
    assert screen(edit(f"{folder}/helper.py"), task, "flag").stripped == ()


def test_a_products_folder_with_a_name_of_tests_may_be_changed() -> None:
    """`django/test` is part of what Django ships, and the row's tests do not lie in it."""
    task = instance().model_copy(
        update={"pass_to_pass": ("tests/test_a.py::test_b", "lib/testing/sums.py::lib.testing.sums.add")}
    )
    fix = edit("django/test/client.py") + edit("lib/testing/sums.py") + edit("tests.py") + edit("testsuite/a.py")
    assert screen(fix, task, "strip").patch == fix


@pytest.mark.parametrize(
    "name",
    [
        *("calc/sums.py::calc.sums.add", "sums.py::sums", "add (calc.sums)", "a b", "x.py"),
        *("calc/sums.py::FLAKE8", "calc/sums.py::mypy", "test_add (calc.Tests)"),
    ],
)
def test_the_product_whose_documents_are_tested_may_be_edited(name: str) -> None:
    """A fix in another file than gold's would be left out."""
    task = instance().model_copy(update={"pass_to_pass": (name,)})
    for path in ("calc/sums.py", "sums.py", "calc/__init__.py", "x.py"):
        assert screen(edit(path), task, "strip").stripped == ()
