"""`dlc ops`, `dlc passes`, `dlc rules`, `dlc cache`."""

from __future__ import annotations

import os

from dlc_core.backend.binary_cache import cached_binary, kept_libraries
from dlc_core.cli.main import main
from dlc_core.cli.tables import first_line, markdown_table, shortened
from dlc_core.decisions import declared
from dlc_core.plugin.registry import registry
from dlc_core.support.kept_files import KeptFiles
from tests.declared import DECLARED, declaring


def test_ops_come_from_their_declarations(dlc, dlc_json):
    records = {record["op"]: record for record in dlc_json("ops")}
    assert records["conv"]["kind"] == "contraction"
    assert records["conv"]["inputs"] == ["x", "w", "bias?"]
    assert "groups=1" in records["conv"]["attributes"]
    assert records["softmax"]["runs"] == "native"
    assert records["add"]["dtypes"] == ["numbers"]
    own = {name: record for name, record in records.items() if record["plugin"] == "core"}
    # A call of a foreign function needs one that is registered; tests/foreign has them.
    assert {name for name, record in own.items() if not record["samples"]} == {"call_dps", "call_dps_on_host"}
    assert [record["op"] for record in dlc_json("ops", "relu", "conv")] == ["relu", "conv"]
    assert "there is no op 'convv'" in _error(dlc, "ops", "convv")


def test_the_support_table_of_a_frontend(dlc, dlc_json):
    lines = dlc("ops", "--frontend", "onnx", "--markdown").splitlines()
    assert lines[0].startswith("| domain | op |")
    assert any("| Conv |" in line for line in lines)
    assert {"domain", "op", "since"} <= dlc_json("ops", "--frontend", "onnx")[0].keys()


def test_dtypes_of_the_core_and_of_plugins(dlc, dlc_json):
    with declaring(*DECLARED):
        records = {record["dtype"]: record for record in dlc_json("dtypes")}
        assert records["float32"]["arithmetic"] == "native"
        assert records["int4"] | {"arithmetic": "for storage", "bits": 4, "storage": 8} == records["int4"]
        assert (
            records["sat6"] | {"plugin": "numbers", "bits": 6, "storage": 8, "kind": "int"} == records["sat6"]
        )
        assert records["float12"]["arithmetic"] == "native only"
        assert [record["dtype"] for record in dlc_json("dtypes", "posit8")] == ["posit8"]
        assert "saturate" in dlc("dtypes", "sat6")
    formats = {record["format"]: record for record in dlc_json("dtypes", "--formats")}
    assert (
        formats["mxfp4"] | {"element": "float4_e2m1fn", "group": 32, "bits per weight": 4.25}
        == formats["mxfp4"]
    )
    assert formats["int4g32"]["zero"] == "8"
    assert "did you mean 'float16'?" in dlc("dtypes", "flaot16", code=2)


def _error(dlc, *arguments):
    from dlc_core.diag import DlcError
    from dlc_core.plugin.registry import registry

    try:
        registry().ops[arguments[-1]]
    except DlcError as error:
        dlc(*arguments, code=1)
        return str(error)
    raise AssertionError("it is known")


def test_passes_and_their_pipelines(dlc, dlc_json):
    records = {record["pass"]: record for record in dlc_json("passes")}
    assert records["fuse"]["stage"] == "graph"
    assert any(option.startswith("max_ops=") for option in records["fuse"]["options"])
    assert records["simplify"]["position"] == [
        "after infer",
        "after fold_batch_norm",
        "after align_channels",
    ]
    assert not records["simplify"]["exact"]
    full, plain = dlc_json("passes", "--pipeline"), dlc_json("passes", "--pipeline", "-O", "0")
    assert list(full) == ["graph", "lower", "tir", "main"]
    assert "simplify" in full["graph"]
    assert "simplify" not in plain["graph"]
    assert {r["stage"] for r in dlc_json("passes", "--stage", "tir")} == {"tir"}
    assert "lower_blocks | " in dlc("passes", "--pipeline")


def test_decisions(dlc_json):
    records = {record["decision"]: record for record in dlc_json("rules", "--decisions")}
    assert records["gemm.prefetch"]["alternatives"] == ["none", "steps", "panel"]
    assert "prefetch" in records["gemm.prefetch"]["what"]
    assert {"attention.form", "winograd.tile"} <= records.keys()


def test_rules(dlc_json):
    names = {record["rule"]: record for record in dlc_json("rules")}
    assert names["mul_1.0"]["at"] == ["mul"]
    assert any(record["approximate"] for record in names.values())
    chosen = dlc_json("rules", "--schedule")
    assert [r["priority"] for r in chosen] == sorted((r["priority"] for r in chosen), reverse=True)


def test_one_rule(dlc, dlc_json):
    (record,) = dlc_json("rules", "cpu.contraction")
    assert "gemm.tile" in record["decisions"]
    assert "It applies if" in record["about"]
    shown = dlc("rules", "cpu.contraction")
    assert "accumulators += broadcast(lhs) * vector(rhs)" in shown
    assert "1xN" in shown
    assert "cpu.contraction" in dlc_json("rules", "gemm.tile")[0]["rules"]
    assert "mul(x, 1.0) = x" in dlc("rules", "mul_1.0")
    assert "did you mean 'gemm.tile'" in dlc("rules", "gemm.til", code=2)


def test_each_schedule_rule_says_when_it_applies_and_what_it_decides():
    known = registry().schedule_rules
    for rule in known.values():
        assert "The rule for " in rule.about, rule.name
        assert set(rule.decisions) <= set(declared()), rule.name
    listed = {name for rule in known.values() for name in rule.decisions}
    made_by_rules = ("gemm.", "gpu.", "map.", "rows.", "window.")
    assert {name for name in declared() if name.startswith(made_by_rules)} <= listed


def test_lists_and_clears_the_cache(dlc, dlc_json, folder, monkeypatch):
    monkeypatch.setenv("DLC_CACHE_DIR", str(folder / "kept"))
    assert dlc_json("cache")["entries"] == []
    dlc("run", "model.onnx", "--random")
    entries = dlc_json("cache", "info")["entries"]
    assert len(entries) == 1
    kernels = dlc_json("cache")["kernels"]
    assert len(kernels) == 1
    assert "1 models" in dlc("cache")
    assert "1 kernels" in dlc("cache", "list")
    assert dlc_json("cache", "clear") == {
        "folder": str(folder / "kept" / "artefacts"),
        "removed": 1,
        "kernels": {"folder": str(folder / "kept" / "kernels"), "removed": 1},
        "libraries": {"folder": str(folder / "kept" / "libraries"), "removed": 0},
        "bytes": entries[0]["bytes"] + kernels[0]["bytes"],
    }
    assert dlc_json("cache")["entries"] == []


def test_the_cache_has_libraries(dlc, dlc_json, tmp_path, monkeypatch):
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "kept"))

    def build(source, out):
        out.write_bytes(source.read_bytes() * 2000)

    for number, text in enumerate((b"one ", b"two ", b"three ")):
        place = cached_binary(text, ".so", (), build, tool="test")
        assert cached_binary(text, ".so", (), build, tool="test") == place
        os.utime(place, (number, number))
    (tmp_path / "kept" / "libraries" / "abandoned").mkdir()
    os.utime(tmp_path / "kept" / "libraries" / "abandoned", (0, 0))
    libraries = dlc_json("cache")["libraries"]
    assert [each["bytes"] for each in libraries] == [8000, 8000, 12000]
    assert "3 libraries, " in dlc("cache")
    assert dlc_json("cache", "size")["libraries"] == 28000
    assert KeptFiles(kept_libraries().folder, 21000).trim() == 1
    assert [file.used for file in kept_libraries().entries()] == [1, 2]
    assert not (tmp_path / "kept" / "libraries" / "abandoned").exists()
    cached_binary(b"two ", ".so", (), build, tool="test")
    assert next(file.used for file in kept_libraries().entries()) == 2
    monkeypatch.setenv("DLC_CACHE_SIZE", "0")
    assert dlc_json("cache", "prune")["libraries"]["removed"] == 2
    place = cached_binary(b"four ", ".so", (), build, tool="test")
    assert [file.path for file in kept_libraries().entries()] == [place]
    assert "1 libraries" in dlc("cache", "clear")
    assert kept_libraries().entries() == []


def test_explains_a_cache_miss(dlc, dlc_json, folder, monkeypatch, capsys):
    monkeypatch.setenv("DLC_CACHE_DIR", str(folder / "kept"))
    assert "the cache is empty" in dlc("cache", "explain", "model.onnx")
    dlc("run", "model.onnx", "--random")
    assert dlc("cache", "explain", "model.onnx").startswith("cache hit")
    assert dlc_json("cache", "size")["bytes"] > 1000
    said = dlc("cache", "explain", "model.onnx", "--opt-level", "1", "--shape", "batch=2")
    assert "opt_level: cached 3, now 1" in said
    assert "shapes.batch: cached nothing, now 2" in said
    answer = dlc_json("cache", "explain", "model.onnx", "--target", "llvm -opt=1")
    assert [each["part"] for each in answer["differences"]] == ["target"]
    data = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").write_bytes(data + b"\x1a\x00")  # an empty documentation string
    assert dlc("cache", "explain", "model.onnx").count("model: cached") == 1
    assert main(["cache", "explain"]) != 0
    assert "needs a model" in capsys.readouterr().err


def test_words_of_tables():
    assert markdown_table(["a", "b"], [["1|2", "3"]]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"
    assert first_line("One sentence\nover lines. Another one.\n\nMore.") == "One sentence over lines"
    assert first_line(None) == ""
    assert shortened(["a", "b", "a", "c", "d", "e"]) == "a, b, c and 2 more"
    assert shortened([]) == ""


def test_targets_show_their_machine_with_the_origin_of_each_fact(dlc):
    text = dlc("targets", "llvm", "-v")
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert lines["caches"][-1] == "detected"
    assert lines["memory_bandwidth"] == ["memory_bandwidth", "27000000000.0", "assumed"]
    assert "bytes per cycle of one core" in text
    assert "machine of reference" in dlc("targets", "-v")
