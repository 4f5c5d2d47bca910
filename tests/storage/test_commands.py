import json
import os
import re
import shutil
from pathlib import Path

import torch
from bundles import bundle, record, step, values
from click.testing import CliRunner, Result

from tl_integrations.capture.protocols import SinkContext
from tl_integrations.cli import main
from tl_integrations.storage import TlspecSink, load


def run(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, [str(argument) for argument in arguments])


def damaged(path: Path) -> Path:
    content = bytearray((path / "shard-00001.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "shard-00001.safetensors").write_bytes(content)
    return path


def test_show_lists_what_a_bundle_holds(tmp_path: Path) -> None:
    told = run("show", bundle(tmp_path / "run.tlspec", context=SinkContext(schedule="every(100)")))
    assert told.exit_code == 0
    assert "9 records" in told.output and "3 steps, 0 to 2" in told.output and "every(100)" in told.output
    plain = json.loads(run("show", "--json", tmp_path / "run.tlspec").output)
    assert plain["status"] == "complete" and plain["steps"] == [0, 1, 2]


def test_show_reads_a_growing_bundle_when_asked(tmp_path: Path) -> None:
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step(0, values(0)))
        sink.flush()
        refused = run("show", tmp_path / "run.tlspec")
        assert refused.exit_code == 2 and "not finished" in refused.output
        assert run("show", "--live", tmp_path / "run.tlspec").exit_code == 0


def test_a_path_without_a_bundle_is_told_what_it_is_and_what_to_pass(tmp_path: Path) -> None:
    first, second = (bundle(tmp_path / "runs" / name / "run.tlspec") for name in ("a", "b"))
    ranked = tmp_path / "runs" / "c.tlspec"
    bundle(ranked, context=SinkContext(rank=1, world_size=2))
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for path, told in {
        tmp_path / "runs": rf"with 'a', 'b', 'c.tlspec'. Give one of.*{first}', '{second}', '{ranked}'\.",
        first / "index.jsonl": f"belongs to the bundle '{first}'",
        tmp_path / "notes.txt": "is a file, and a bundle is a folder",
        tmp_path / "empty": "is an empty folder",
        tmp_path / "nowhere": f"no bundle at '{tmp_path / 'nowhere'}', seen from",
    }.items():
        shown = run("show", path)
        assert shown.exit_code == 2 and re.search(told, " ".join(shown.output.split())), shown.output
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "empty").rmdir()
    assert "no bundle below it either" in run("recover", tmp_path).output


def test_terminal_codes_in_names_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    hostile = record(torch.ones(1), "x_1_1", layer="\x1b[2J\u202eevil[red]", func_name="\x07")
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step(0, [hostile]))
    told = run("show", tmp_path / "run.tlspec").output
    assert "\x1b" not in told and "\u202e" not in told
    assert "\\x1b[2J\\u202eevil[red]" in told


def test_verify_tells_whole_from_damaged(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    assert run("verify", path).exit_code == 0
    told = run("verify", damaged(path))
    assert told.exit_code == 1 and "record 8" in told.output


def test_recover_counts_what_is_lost_and_writes_the_rest(tmp_path: Path) -> None:
    path = damaged(bundle(tmp_path / "run.tlspec"))
    told = run("recover", path, "--to", tmp_path / "repaired.tlspec")
    assert told.exit_code == 1 and "8 records recovered, 1 lost" in told.output
    assert len(load(tmp_path / "repaired.tlspec")) == 8
    assert run("recover", tmp_path / "repaired.tlspec").exit_code == 0


def test_convert_writes_one_step_in_the_other_format(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    told = run("convert", path, tmp_path / "out.tlspec", "--to", "torchlens", "--step", 1)
    assert told.exit_code == 0, told.output
    assert "fastlog_index.jsonl" in os.listdir(tmp_path / "out.tlspec")
    converted = load(tmp_path / "out.tlspec")
    assert all(torch.equal(r.out, t) for r, t in zip(converted, values(1).values())) and len(converted) == 3
    back = run("convert", tmp_path / "out.tlspec", tmp_path / "back.tlspec", "--to", "tlspec")
    assert back.exit_code == 0 and len(load(tmp_path / "back.tlspec")) == 3
    again = run("convert", path, tmp_path / "out.tlspec", "--to", "torchlens")
    assert again.exit_code == 2 and "exists" in again.output
