"""The column of text: decided once for all files by their first rows, or refused with values."""

import csv
import io
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from jaxpe.data import load_corpus
from jaxpe.data.corpora.shards import find_shards
from jaxpe.data.corpora.sources import chosen_fields
from jaxpe.data.formats.columns import Fields, ReadLog
from tests.data.reading import read_both_ways, refused, write_lines

WRONG = Path(os.environ.get("JAXPE_DATA_DIR", "none")) / "wrong_cases"


def chosen(source, name, **options):
    """The column is chosen, and a choice says so."""
    corpus = load_corpus(source, **options)
    assert [c.value for c in corpus.choices if c.setting == "column of text"] == [name]
    return corpus.documents


@pytest.mark.skipif(not WRONG.exists(), reason="files that people had")
def test_files_that_were_read_wrongly():
    refused(WRONG / "first_null.jsonl", r"'body' \(null, 'hello world'")
    refused(WRONG / "first_number.csv", r"'review' \('1984'")
    named = load_corpus(WRONG / "first_null.jsonl", text_field="body", skip_nulls=True)
    assert (named.documents, named.null_texts) == (["hello world", "good bye"], 1)
    refused(WRONG / "first_null.jsonl", "line 1", text_field="body")
    refused(WRONG / "parts.jsonl", "jq")
    assert chosen(WRONG / "space_quoted.csv", "text") == ["hello world", "good bye"]


# Values beside an id, which is then not the text because it alone has strings.
BESIDE = {
    "null": [None, None],
    "empty": ["", ""],
    "empty lists": [[], []],
    "lists": [["p", "q"], ["r"]],
    "objects": [{"text": "p"}, {"text": "q"}],
    "strings": [1984, "p"],
    "lists of integers": [[1, 2], [3]],
    "missing": [None],
}


@pytest.mark.parametrize("kind", BESIDE)
def test_the_only_strings_beside_something_unclear(tmp_path, kind):
    rows = zip([{"id": "a1"}, {"id": "a2"}], BESIDE[kind], strict=False)
    path = write_lines(tmp_path / "a.jsonl", *(row | {"body": x} for row, x in rows))
    refused(path, r"'id' \('a1'.*'body' \(")


def test_numbers_beside_the_text(tmp_path):
    row = {"body": "p", "n": 1, "x": 0.5, "ok": True, "no": "False", "year": "1984", "score": "NA"}
    rows = [row, row | {"body": "q", "score": "3"}, row | {"body": 7}]
    assert chosen(write_lines(tmp_path / "a.jsonl", *rows[:2]), "body") == ["p", "q"]
    refused(write_lines(tmp_path / "a.jsonl", *rows), "line 3: 'body' is")
    (tmp_path / "a.csv").write_text("n,body,score\n1,p,\n1e3,q,4.5\n-2,7,nan\n")
    assert chosen(tmp_path / "a.csv", "body") == ["p", "q", "7"]


def test_usual_names_hold_strings(tmp_path):
    rows = [{"text": 5, "sentence": "p", "title": "x"}, {"text": 6, "sentence": "q", "title": "y"}]
    assert chosen(write_lines(tmp_path / "a.jsonl", *rows), "sentence") == ["p", "q"]
    rows = [{"text": None, "title": "x"}, {"text": "p", "title": "y"}, {"text": "q", "title": "z"}]
    path = write_lines(tmp_path / "a.jsonl", *rows)
    assert chosen(path, "text", skip_nulls=True) == ["p", "q"]
    refused(path, "line 1")


def test_one_column_for_all_files(tmp_path):
    first = write_lines(tmp_path / "a.jsonl", {"body": "p"}, {"body": "q"})
    second = write_lines(tmp_path / "b.jsonl", {"title": "r"}, {"title": "s"})
    refused(tmp_path, r"'body' \('p', 'q', null\), 'title'")
    refused(tmp_path, "b.jsonl, line 1", text_field="body")
    corpus = load_corpus(tmp_path, text_field="body", skip_nulls=True)
    assert (corpus.documents, corpus.null_texts) == (["p", "q"], 2)
    paths = [str(first), str(second)]
    refused(paths, "'other'", lambda x: chosen_fields(x, Fields("other", None), ReadLog()))
    fields = Fields("title", None, skip_nulls=True)  # of the second file alone
    assert chosen_fields(paths, fields, ReadLog()).text == "title"


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_a_table_without_the_column_has_null_texts(tmp_path, name):
    pa.parquet.write_table(pa.table({"title": ["r", "s"]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("title\nr\ns\n")
    (shard,) = find_shards([tmp_path / name])
    log = ReadLog()
    assert list(shard.documents(text_field="body", skip_nulls=True, log=log)) == []
    assert log.null_texts == 2
    refused("body", "null or missing", lambda field: list(shard.documents(text_field=field)))


@pytest.mark.parametrize(("before", "is_seen"), [(999, True), (1000, False)])
def test_the_first_thousand_rows_decide(tmp_path, before, is_seen):
    rows = [{"n": 1, "text": None}] * before + [{"n": 1, "text": "p"}] * 3
    path = write_lines(tmp_path / "a.jsonl", *rows)
    if is_seen:
        assert chosen(path, "text", skip_nulls=True) == ["p"] * 3
    else:
        refused(path, "not clear", skip_nulls=True)


def test_at_least_ten_rows_of_each_file_decide(tmp_path):
    for number in range(120):
        write_lines(tmp_path / f"{number:03}.jsonl", *([{"n": 1, "body": "p"}] * 10))
    assert len(chosen(tmp_path, "body")) == 1200
    rows = [{"n": 1, "body": "p"}] * 9 + [{"n": 1, "body": "p", "title": "q"}]
    write_lines(tmp_path / "119.jsonl", *rows)
    refused(tmp_path, "'title'")


def test_a_table_beside_lines_of_text(tmp_path):
    (tmp_path / "a.txt").write_text("p\nq\n")
    (tmp_path / "b.csv").write_text("n,body\n1,r\n")
    assert chosen([tmp_path / "a.txt", tmp_path / "b.csv"], "body") == ["p", "q", "r"]


@pytest.mark.parametrize("header", ["id, text", "id,text", '"id", "text"'])
@pytest.mark.parametrize("delimiter", [", ", " , ", "; "])
def test_blanks_after_the_delimiter(tmp_path, delimiter, header):
    header = header.replace(",", delimiter.strip())
    rows = [(header,), (1, '"hello, world; a"'), (2, '"good ""bye"""'), (3, "plain")]
    text = "".join(delimiter.join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "a.csv").write_text(text)
    assert load_corpus(tmp_path / "a.csv").documents == ["hello, world; a", 'good "bye"', "plain"]


def test_texts_such_as_na_are_counted(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("text\nNA\nnull\n\\N\nNaN here\nnone\n")
    corpus = read_both_ways(tmp_path)
    assert corpus.documents == ["NA", "null", "\\N", "NaN here", "none"] * 2
    (choice,) = (c for c in corpus.choices if c.setting == "texts such as NA")
    assert choice.value.startswith("6 ")


def test_a_long_text_is_not_kept_for_the_choice(tmp_path):
    rows = {"body": "p" * 10**6}, {"body": "q" * 10**6, "x": ["r"] * 9}
    refused(write_lines(tmp_path / "a.jsonl", *rows), r"'x' \(null, \['r', 'r', \.\.\.\]\)")


def test_tables_of_pandas(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"body": ["p", 'on "little", cat\nfeet', "q"], "stars": [1.0, None, 2.0]})
    frame.to_csv(tmp_path / "a.csv")
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "a.parquet")
    for path in sorted(tmp_path.iterdir()):
        assert chosen(path, "body") == [*frame.body], path.name


def test_a_table_of_a_spreadsheet(tmp_path):
    """As Excel saves it: a mark, semicolons, CRLF, Windows' line ends in cells, an empty column."""
    file = io.StringIO()
    rows = [("Nr", "Text", "Note"), (1, "one\ntwo; three", ""), (2, 'say "hi"', "")]
    csv.writer(file, "excel", delimiter=";").writerows(rows)
    (tmp_path / "a.csv").write_bytes(file.getvalue().encode("utf-8-sig"))
    refused(tmp_path / "a.csv", r"'Nr' \('1', '2'\)")
    corpus = read_both_ways(tmp_path / "a.csv", text_field="Text")
    assert corpus.documents == ["one\ntwo; three", 'say "hi"']


def test_datasets_saved_to_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"id": ["a1", "a2"], "answers": [["p"], ["q"]], "text": ["to be", "or not"]}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "one")
    assert chosen(tmp_path / "one", "text") == ["to be", "or not"]
