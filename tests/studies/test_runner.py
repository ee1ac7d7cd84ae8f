"""The runner: it finds studies, writes reports, and fails where a claim fails."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from simnet.cli.app import command_line
from simnet.errors import ClaimFailed, InvalidInput
from studies import facts, registry, report
from studies.study import Claim, Picture, Result, Table
from studies.terminal import print_result, table_text

ROWS = [{"id": "a", "predicted": 1.5, "inside": True}, {"id": "b|c", "predicted": 123456.0, "reason": "<none>"}]


def picture(figure):
    figure.add_subplot().plot([1, 2], [3, 4])


def a_study(monkeypatch, *, holds):
    result = Result(ROWS, [Claim("rows are two", holds, "2")], pictures=[Picture("line", "A line", picture)])
    study = registry.Study("probe", "A study for the test.\n\nMore text.")
    monkeypatch.setattr(registry.Study, "run", lambda self, *, quick=False: result)
    monkeypatch.setattr(registry, "studies", lambda: {"probe": study})
    return study, result


def test_a_report_holds_claims_rows_and_the_picture_in_one_page(monkeypatch, tmp_path):
    study, result = a_study(monkeypatch, holds=True)
    names = {path.name for path in report.write(study, result, tmp_path)}
    assert names == {"probe.md", "probe.html", "probe.jsonl", "probe-line.png"}
    page = (tmp_path / "probe.html").read_text()
    assert "data:image/png;base64," in page
    assert "&lt;none&gt;" in page
    assert "<none>" not in page
    text = (tmp_path / "probe.md").read_text()
    assert "- holds: rows are two (2)" in text
    assert "| b\\|c | 123,456 |" in text


def test_rows_go_to_stdout_as_json_and_nothing_else_does(monkeypatch, tmp_path):
    a_study(monkeypatch, holds=True)
    answer = CliRunner().invoke(
        command_line("studies.cli", summary=""), ["run", "probe", "--json", "--out", str(tmp_path)]
    )
    assert [json.loads(line) for line in answer.stdout.splitlines()] == ROWS
    assert answer.exit_code == 0


def test_a_failed_claim_fails_the_study_with_code_1(monkeypatch, tmp_path):
    a_study(monkeypatch, holds=False)
    answer = CliRunner().invoke(command_line("studies.cli", summary=""), ["run", "probe", "--out", str(tmp_path)])
    assert isinstance(answer.exception, ClaimFailed)
    assert answer.exception.exit_code == 1


def test_an_unknown_study_is_refused_with_the_known_ones():
    with pytest.raises(InvalidInput, match="unknown study 'none'; choose one of"):
        registry.find("none")


def test_listing_parses_and_leaves_out_modules_that_are_no_studies():
    assert not {"facts", "registry", "report", "study"} & set(registry.studies())


def test_every_fact_has_a_known_kind_and_its_own_id():
    ids = [fact.id for fact in facts.facts()]
    assert len(ids) == len(set(ids)) == 577
    assert {fact.kind for fact in facts.facts()} == {"calibrate", "validate", "input", "unverified"}


def test_a_digest_changes_with_the_value():
    fact = facts.find("goyal.bwd")
    assert fact.digest != facts.Fact({**fact.values, "value": 0.121}).digest


def test_an_unwritable_folder_is_refused(monkeypatch, tmp_path):
    study, result = a_study(monkeypatch, holds=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="name another folder"):
        report.write(study, result, tmp_path / "file")


def test_tables_show_all_columns_of_all_rows():
    assert report.columns(Table("", ROWS)) == ["id", "predicted", "inside", "reason"]


def test_numbers_stand_to_the_right_under_headings_in_words():
    rows = [
        {"id": "a", "size_bytes": 65536, "error": -0.1403, "spread": 0.5},
        {"id": "b", "size_bytes": 4, "error": None},
    ]
    text = table_text(Table("", rows)).splitlines()
    assert text == ["id  size bytes   error  spread", "a       65,536  -14.0%   50.0%", "b            4"]


def test_markdown_and_html_align_numbers(monkeypatch, tmp_path):
    study, result = a_study(monkeypatch, holds=True)
    report.write(study, result, tmp_path)
    assert "---:|" in (tmp_path / f"{study.name}.md").read_text()
    assert '<th class="number">predicted</th>' in (tmp_path / f"{study.name}.html").read_text()


def test_names_in_a_report_are_code_and_a_table_keeps_its_note(monkeypatch, tmp_path, capsys):
    study, _ = a_study(monkeypatch, holds=True)
    result = Result(ROWS, [], [Table("Rows", ROWS, "2 rows of `a < b`")])
    report.write(study, result, tmp_path)
    assert "2 rows of <code>a &lt; b</code>" in (tmp_path / "probe.html").read_text()
    print_result(result)
    assert "2 rows of `a < b`" in capsys.readouterr().out
