"""What a running Hydra job says of itself."""

import json
import subprocess
import sys
from pathlib import Path

from tl_integrations.launch import job_config, run_folder

APP = """
import hydra, json, sys
from hydra.core.config_store import ConfigStore
from tl_integrations.launch import job_config, run_folder

ConfigStore.instance().store(
    "config", {"width": 1, "secret": "${oc.env:TL_SECRET}", "twice": "${width}", "open": "???"}
)

@hydra.main(version_base=None, config_name="config")
def main(cfg):
    print(json.dumps({"folder": str(run_folder()), "config": job_config()}))

main()
print(run_folder(), job_config())
"""


def run_app(folder: Path, *arguments: str) -> list[str]:
    (folder / "app.py").write_text(APP)
    done = subprocess.run(
        [sys.executable, "app.py", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip().splitlines()


def test_outside_a_job_there_is_no_folder_and_no_config() -> None:
    assert run_folder() is None
    assert job_config() is None


def test_a_job_knows_its_folder_and_its_unresolved_config(tmp_path: Path) -> None:
    inside, after = run_app(tmp_path, "width=3", f"hydra.run.dir={tmp_path}/out")
    said = json.loads(inside)
    assert said["folder"] == str(tmp_path / "out")
    assert said["config"] == {"width": 3, "secret": "${oc.env:TL_SECRET}", "twice": "${width}", "open": "???"}
    assert after == "None None", "the job's folder must not outlive the job"


def test_each_job_of_a_sweep_has_its_own_folder_and_config(tmp_path: Path) -> None:
    lines = run_app(tmp_path, "-m", "width=3,4", f"hydra.sweep.dir={tmp_path}/sweep")
    said = [json.loads(line) for line in lines if line.startswith("{")]
    assert [job["folder"] for job in said] == [str(tmp_path / "sweep" / "0"), str(tmp_path / "sweep" / "1")]
    assert [job["config"]["width"] for job in said] == [3, 4]
