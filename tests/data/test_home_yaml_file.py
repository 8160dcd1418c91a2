"""A file that is no YAML is one error, for each exception of PyYAML."""

import pytest

from databuild_dagster.data.home import BadYaml, read_yaml


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"low: 2024-02-30", "day is out of range for month"),
        (b"low: 2024-01-01 25:61:61", "hour must be in 0..23"),
        (b"!!int '_'", "string index out of range"),
        (b"!!bool x", "x"),
        (b"!!timestamp x", "NoneType"),
        (b"[" * 600, "nested too deeply"),
        (b"rules: [", "expected the node content"),
        (b"? {}\n: 1", "unhashable"),
        (b"!!python/object:os.system x", "could not determine a constructor"),
        (b"\xff", "can't decode"),
        (b"a: \0", "unacceptable character"),
    ],
)
def test_what_pyyaml_cannot_read_is_bad_yaml_with_the_reason(tmp_path, text, why):
    path = tmp_path / "rules.yaml"
    path.write_bytes(text)

    with pytest.raises(BadYaml, match=why):
        read_yaml(path)
