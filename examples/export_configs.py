"""How do I keep the YAML in my repository in step with the code it came from, and let CI watch it?

The digit networks of digits_configs.py are exported as YAML, checked, edited by hand, and checked again. The
commands are those of a terminal, called here in one process; in CI the second one is the whole job.

    python examples/export_configs.py [FOLDER]

Prints each command with what it says and its exit code: 0 current, 1 not current, 2 could not be carried out.
"""

import sys
from pathlib import Path

from tl_integrations.cli import main as tl_integrations
from tl_integrations.launch import assert_configs_current

BUILDERS = "digits_configs"


def terminal(*arguments: str) -> int:
    """Run `tl-integrations ...` and return its exit code."""
    print(f"\n$ tl-integrations {' '.join(arguments)}")
    try:
        tl_integrations(arguments)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    print(f"[exit code {code}]")
    return code


def main(folder: Path = Path("outputs/export_configs")) -> list[int]:
    """Returns the exit codes."""
    export = ("config", "export", BUILDERS, "--out", str(folder))
    codes = [
        terminal(*export, "--overwrite"),
        terminal(*export, "--check"),
    ]

    mlp = folder / "model" / "mlp.yaml"
    mlp.write_text(mlp.read_text().replace("depth: 2", "depth: 5"))
    print(f"\nSomebody edits {mlp}: depth 5 where the code says 2.")
    codes.append(terminal(*export, "--check"))

    # The same check as a test of a suite: nothing else to run in CI.
    try:
        assert_configs_current(BUILDERS, folder)
    except AssertionError as failed:
        print(f"\nassert_configs_current: {str(failed).splitlines()[0]}")

    codes.append(terminal(*export, "--overwrite"))
    codes.append(terminal(*export, "--check"))
    return codes


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
