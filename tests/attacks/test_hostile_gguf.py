"""The attack: a GGUF file lies about what is in it, so that whoever reads it crashes, hangs, or takes the machine.

Every one must end in one CheckpointError that names the file, before memory that the file merely claims is taken. Files
are put together here byte by byte: no library writes such files. What they say about tokenizers has a file of its own.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from localspec.core.drain import drain
from localspec.core.errors import CheckpointError
from localspec.core.weight_formats import find_format
from localspec.engine.arch import read_arch
from localspec.loading.kernels import load_decoder
from localspec.loading.plan import Plan
from localspec.models.bounds import check_heads, check_numbers
from localspec.models.catalog import Catalog
from localspec.models.checkpoint import open_snapshot
from localspec.models.gguf.config import ACTED_ON, read_config, read_generation, stored_as
from localspec.models.gguf.header import read_gguf
from localspec.models.gguf.reading import MAX_BYTES, MAX_NUMBERS, MAX_STRINGS
from localspec.runtime.local_models import UNREADABLE, listed_model
from tests.support.gguf_files import save_pair

pytestmark = pytest.mark.heavy

UINT8, UINT32, FLOAT32, STRING, ARRAY, UINT64 = 0, 4, 6, 8, 9, 10
F32, Q4_0, Q4_K = 0, 2, 12
HUGE = (1 << 63) - 1
NAN, INF = float("nan"), float("inf")
SPARSE = 1 << 34  # bytes that a file has and no disk: what they claim is there


def u32(number: int) -> bytes:
    return struct.pack("<I", number)


def u64(number: int) -> bytes:
    return struct.pack("<Q", number)


def text(raw: bytes) -> bytes:
    return u64(len(raw)) + raw


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return text(key) + u32(kind) + value


def tensor(name: bytes, sizes: Iterable[int], kind: int = F32, begin: int = 0, dimensions: int | None = None) -> bytes:
    sizes = list(sizes)
    count = len(sizes) if dimensions is None else dimensions
    return text(name) + u32(count) + b"".join(map(u64, sizes)) + u32(kind) + u64(begin)


NAME = entry(b"general.name", STRING, text(b"tiny"))
NORM = tensor(b"output_norm.weight", [8])


def gguf(
    *entries: bytes,
    tensors: Iterable[bytes] = (NORM,),
    start: bytes = b"GGUF" + u32(3),
    counts: tuple[int | None, int | None] = (None, None),
    data: bytes = bytes(32),
) -> bytes:
    """`counts`: of tensors and of entries, where they are not what follows."""
    listed = list(tensors)
    said = [len(found) if count is None else count for count, found in zip(counts, (listed, entries), strict=True)]
    raw = start + b"".join(map(u64, said)) + b"".join(entries) + b"".join(listed)
    return raw + bytes(-len(raw) % 32) + data


def array(kind: int, count: int, values: bytes = b"") -> bytes:
    return u32(kind) + u64(count) + values


def nested(depth: int) -> bytes:
    return (u32(ARRAY) + u64(1)) * depth + array(UINT8, 1, b"x")


ATTACKS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not a GGUF file"),
    "two bytes": (b"GG", "is not a GGUF file"),
    "another file": (b"PK\3\4" + bytes(60), "is not a GGUF file"),
    "nothing but its name": (b"GGUF", "is cut short"),
    "version 0": (gguf(start=b"GGUF" + u32(0)), "version 0"),
    "version 1": (gguf(start=b"GGUF" + u32(1)), "version 1"),
    "version 4": (gguf(start=b"GGUF" + u32(4)), "version 4"),
    "big-endian": (gguf(start=b"GGUF" + struct.pack(">I", 3)), "big-endian"),
    "2^63 tensors": (gguf(NAME, counts=(1 << 63, None)), "claims 9,223,372,036,854,775,808 tensors"),
    "2^64 - 1 tensors": (gguf(NAME, counts=((1 << 64) - 1, None)), "tensors"),
    "2^63 entries": (gguf(NAME, counts=(None, 1 << 63)), "entries of metadata"),
    "more entries than bytes": (gguf(NAME, counts=(None, 60_000)), "claims 60,000 entries"),
    "more tensors than follow": (gguf(NAME, counts=(5, None), data=b""), "claims 5 tensors, but only "),
    "a key of 2^63 bytes": (gguf(u64(HUGE) + b"key"), "a key is 9,223,372,036,854,775,807 bytes long"),
    "a key longer than the file": (gguf(u64(60_000) + b"key"), "is cut short"),
    "a key that is no UTF-8": (gguf(entry(b"\xff\xfe", UINT8, b"x")), "a key is not UTF-8"),
    "a key twice": (gguf(NAME, NAME), "'general.name' appears twice"),
    "a value of a type that is not": (gguf(entry(b"a", 13, b"")), "'a' is of the unknown type 13"),
    "a value of type 2^32 - 1": (gguf(entry(b"a", (1 << 32) - 1, b"")), "unknown type 4294967295"),
    "text of 2^63 bytes": (gguf(entry(b"a", STRING, u64(HUGE))), "'a' is 9,223,372,036,854,775,807 bytes long"),
    "text longer than the file": (gguf(entry(b"a", STRING, u64(9999))), "is cut short"),
    "text that is no UTF-8": (gguf(entry(b"a", STRING, text(b"\xc3("))), "'a' is not UTF-8"),
    "an array of 2^63 numbers": (gguf(entry(b"a", ARRAY, array(UINT64, HUGE))), "values of 'a'"),
    "an array whose bytes overflow": (gguf(entry(b"a", ARRAY, array(UINT64, 1 << 61))), "values of 'a'"),
    "an array longer than the file": (gguf(entry(b"a", ARRAY, array(FLOAT32, 5000))), "claims 5,000 values of 'a'"),
    "an array of 2^63 strings": (gguf(entry(b"a", ARRAY, array(STRING, HUGE))), "values of 'a'"),
    "a string in an array that has no end": (gguf(entry(b"a", ARRAY, array(STRING, 1, u64(HUGE)))), "is cut short"),
    "a string in an array of 2^64 - 1 bytes": (
        gguf(entry(b"a", ARRAY, array(STRING, 2, u64((1 << 64) - 1) + u64(0)))),
        "is cut short",
    ),
    "an array of arrays": (gguf(entry(b"a", ARRAY, nested(1))), "'a' is an array of arrays"),
    "arrays in arrays in arrays": (gguf(entry(b"a", ARRAY, nested(100_000))), "'a' is an array of arrays"),
    "an array of what is not": (gguf(entry(b"a", ARRAY, array(77, 1, b"x"))), "unknown type 77"),
    "no alignment": (gguf(entry(b"general.alignment", UINT32, u32(0))), "alignment is 0"),
    "an alignment that is no power": (gguf(entry(b"general.alignment", UINT32, u32(48))), "alignment is 48"),
    "an alignment of 2^31": (gguf(entry(b"general.alignment", UINT32, u32(1 << 31))), "alignment is 2147483648"),
    "an alignment in words": (gguf(entry(b"general.alignment", STRING, text(b"32"))), "alignment is 32"),
    "a name too long": (gguf(tensors=[tensor(b"x" * 65, [8])]), "a tensor's name is 65 bytes long"),
    "a name of 2^63 bytes": (gguf(tensors=[u64(HUGE) + NORM[8:]]), "name is 9,223"),
    "a name that is no UTF-8": (gguf(tensors=[tensor(b"\x80", [8])]), "a tensor's name is not UTF-8"),
    "a name twice": (gguf(tensors=[NORM, NORM]), "two tensors 'output_norm.weight'"),
    "no dimensions": (gguf(tensors=[tensor(b"a", [])]), "has 0 dimensions"),
    "five dimensions": (gguf(tensors=[tensor(b"a", [1] * 5)]), "has 5 dimensions"),
    "2^32 - 1 dimensions": (gguf(tensors=[tensor(b"a", [8], dimensions=(1 << 32) - 1)]), "4,294,967,295 dimensions"),
    "a dimension of 0": (gguf(tensors=[tensor(b"a", [8, 0])]), "an impossible shape"),
    "a dimension of 2^63": (gguf(tensors=[tensor(b"a", [1 << 63])]), "an impossible shape"),
    "dimensions whose product is 0 in 64 bits": (gguf(tensors=[tensor(b"a", [1 << 32, 1 << 32])]), "impossible shape"),
    "dimensions whose bytes are few in 64 bits": (
        gguf(tensors=[tensor(b"a", [1 << 31, 1 << 31, 1, 1])]),
        "impossible shape",
    ),
    "a type that is not": (gguf(tensors=[tensor(b"a", [8], kind=99)]), "unknown type 99"),
    "a type that was taken away": (gguf(tensors=[tensor(b"a", [8], kind=4)]), "unknown type 4"),
    "rows that are no whole blocks": (gguf(tensors=[tensor(b"a", [40], kind=Q4_0)]), "rows of 40 numbers, and Q4_0 32"),
    "rows of one number in blocks": (gguf(tensors=[tensor(b"a", [1, 256], kind=Q4_K)]), "rows of 1 numbers"),
    "a tensor beyond the end": (gguf(tensors=[tensor(b"a", [9])]), "tensor 'a' ends at byte"),
    "one that begins beyond the end": (gguf(tensors=[tensor(b"a", [8], begin=1 << 40)]), "tensor 'a' ends at byte"),
    "one that begins at 2^64 - 32": (gguf(tensors=[tensor(b"a", [8], begin=(1 << 64) - 32)]), "tensor 'a' ends at"),
    "one that begins anywhere": (gguf(tensors=[tensor(b"a", [1], begin=4)]), "not begin at a multiple of 32"),
    "one over another": (gguf(tensors=[NORM, tensor(b"a", [8])]), "overlaps another"),
    "one inside another": (
        gguf(tensors=[tensor(b"big", [16]), tensor(b"a", [2], begin=32)], data=bytes(64)),
        "tensor 'a' overlaps another",
    ),
    "no data": (gguf(data=b""), "is cut short"),
    "a part of what it does not name": (gguf(entry(b"split.count", UINT32, u32(3))), "its name does not say which"),
    "a part of 2^63 parts": (gguf(entry(b"split.count", UINT64, u64(HUGE))), "its name does not say which"),
}


def test_what_the_attacks_are_made_of_is_sound(tmp_path: Path):
    found = read_gguf(save(tmp_path, gguf(NAME, entry(b"a", ARRAY, array(STRING, 2, text(b"x") + text(b"")))), "good"))
    assert dict(found.metadata) == {"general.name": "tiny", "a": ("x", "")}
    assert found.tensors["output_norm.weight"].num_bytes == 32


def save(folder: Path, raw: bytes, name: str = "model", size: int | None = None) -> Path:
    """`size`: with a hole behind it, up to so many bytes."""
    file = folder / f"{name}.gguf"
    file.write_bytes(raw)
    if size:
        os.truncate(file, size)
    return file


def refusal(file: Path, call: Callable[[Path], object] = read_gguf) -> str:
    """The one sentence that it ends in."""
    with pytest.raises(CheckpointError) as caught:
        call(file)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert len(caught.value.message) < 300 + len(str(file))
    return caught.value.message


@pytest.mark.parametrize("name", ATTACKS)
def test_a_lie_is_one_sentence(name: str, tmp_path: Path):
    raw, fault = ATTACKS[name]
    for call in (read_gguf, open_snapshot):
        message = refusal(save(tmp_path, raw), call)
        assert str(tmp_path) in message
        assert fault in message


def test_a_file_cut_at_any_byte_is_one_sentence(tmp_path: Path):
    whole = gguf(NAME, entry(b"a", ARRAY, array(STRING, 2, text(b"x") + text(b"yz"))), data=bytes(32))
    for length in range(len(whole)):
        refusal(save(tmp_path, whole[:length]))


def test_no_changed_bit_is_anything_but_a_model_or_a_sentence(tmp_path: Path):
    whole = gguf(NAME, entry(b"a", ARRAY, array(STRING, 2, text(b"x") + text(b"yz"))), data=bytes(32))
    for bit in range(8 * (len(whole) - 32)):
        raw = bytearray(whole)
        raw[bit // 8] ^= 1 << bit % 8
        with suppress(CheckpointError):
            list(read_gguf(save(tmp_path, bytes(raw))).metadata.values())


def test_strings_that_nobody_reads_are_refused_when_somebody_does(tmp_path: Path):
    found = read_gguf(save(tmp_path, gguf(entry(b"a", ARRAY, array(STRING, 1, text(b"\xff"))))))
    with pytest.raises(CheckpointError, match="its 'a' is not UTF-8"):
        found.metadata["a"]


# --- files that are in parts, or none


def part(index: int, count: int, *names: bytes, whole: int | None = None) -> bytes:
    entries = [entry(b"split.no", UINT32, u32(index)), entry(b"split.count", UINT32, u32(count))]
    entries += [] if whole is None else [entry(b"split.tensors.count", UINT32, u32(whole))]
    return gguf(*entries, tensors=[tensor(name, [8]) for name in names])


PARTS: dict[str, tuple[dict[str, bytes], str]] = {
    "one is missing": ({"m-00001-of-00002": part(0, 2, b"a")}, "m-00002-of-00002.gguf is missing"),
    "one is another": (
        {"m-00001-of-00002": part(0, 2, b"a"), "m-00002-of-00002": part(0, 2, b"b")},
        "is not part 2 of 2",
    ),
    "one is whole": ({"m-00001-of-00002": part(0, 2, b"a"), "m-00002-of-00002": gguf()}, "is not part 2 of 2"),
    "one is of more": (
        {"m-00001-of-00002": part(0, 2, b"a"), "m-00002-of-00002": part(1, 3, b"b")},
        "is not part 2 of 2",
    ),
    "the count is another": ({"m-00001-of-00003": part(0, 2, b"a")}, "its name does not say which"),
    "a tensor in both": (
        {"m-00001-of-00002": part(0, 2, b"a"), "m-00002-of-00002": part(1, 2, b"a")},
        "Tensor 'a' is in",
    ),
    "more tensors than said": (
        {"m-00001-of-00002": part(0, 2, b"a", whole=3), "m-00002-of-00002": part(1, 2, b"b")},
        "have 2 tensors, but it says 3",
    ),
    "a later one with metadata of megabytes": (
        {
            "m-00001-of-00002": part(0, 2, b"a"),
            "m-00002-of-00002": gguf(entry(b"a", STRING, text(b"x" * (5 << 20)))),
        },
        "longer than 4,194,304 bytes",
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_that_do_not_belong_together_are_one_sentence(name: str, tmp_path: Path):
    files, fault = PARTS[name]
    first, *_ = [save(tmp_path, raw, one) for one, raw in files.items()]
    assert fault in refusal(first)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_one_sentence(make: Callable[[Path], object], tmp_path: Path):
    make(tmp_path / "model.gguf")
    assert "model.gguf cannot be read" in refusal(tmp_path / "model.gguf")
    save(tmp_path, part(0, 2, b"a"), "m-00001-of-00002")
    make(tmp_path / "m-00002-of-00002.gguf")
    assert "m-00002-of-00002.gguf cannot be read" in refusal(tmp_path / "m-00001-of-00002.gguf")


def test_a_link_that_leads_nowhere_is_one_sentence(tmp_path: Path):
    (tmp_path / "model.gguf").symlink_to(tmp_path / "gone")
    assert "cannot be read" in refusal(tmp_path / "model.gguf", open_snapshot)


# --- tensors


def test_a_file_that_is_cut_after_it_was_opened_is_one_sentence(tmp_path: Path):
    file, _ = save_pair(tmp_path, "Q8_0")
    snapshot = open_snapshot(file)
    os.truncate(file, file.stat().st_size // 2)
    for quant in ("fp32", "int8"):
        assert "cut short" in refusal(file, lambda _, quant=quant: loaded(snapshot, quant))


@pytest.mark.parametrize("number", [NAN, INF])
@pytest.mark.parametrize("quant", ["int8", "int4", "nf4"])
def test_a_scale_that_is_no_number_is_refused_by_its_tensors_name(number: float, quant: str, tmp_path: Path):
    file, _ = save_pair(tmp_path, "Q8_0")
    snapshot = open_snapshot(file)
    info = snapshot.tensors["model.layers.1.mlp.down_proj.weight"]
    with file.open("r+b") as stream:
        stream.seek(info.begin)
        stream.write(struct.pack("<e", number))
    message = refusal(file, lambda file: loaded(open_snapshot(file), quant))
    assert "'model.layers.1.mlp.down_proj.weight' has a weight that is infinite or not a number" in message


def loaded(snapshot: object, quant: str) -> None:
    drain(load_decoder(snapshot, Plan(find_format(quant), 64)))  # type: ignore[arg-type]


def test_random_bytes_for_weights_are_a_model_or_a_sentence(tmp_path: Path):
    file, _ = save_pair(tmp_path, "Q4_K")
    begin = min(info.begin for info in open_snapshot(file).tensors.values())
    with file.open("r+b") as stream:
        stream.seek(begin)
        stream.write(random.Random(3).randbytes(file.stat().st_size - begin))
    assert "not a number" in refusal(file, lambda file: loaded(open_snapshot(file), "int8"))


def test_the_picker_lists_a_broken_one_as_such(tmp_path: Path):
    file = save(tmp_path, ATTACKS["one over another"][0])
    assert listed_model("it", Catalog.load().resolve(str(file)), 10**9).fit == UNREADABLE


ANY = (0, 1, 3, -1, (1 << 64) - 1, NAN, INF, -1.0, 0.0, 1e300, "", "yarn", (1, 2), ("a",), True)


def test_whatever_a_field_says_it_is_a_configuration_or_a_sentence(tmp_path: Path):
    file, _ = save_pair(tmp_path)
    model = read_gguf(file)
    fields = {key for key in model.metadata if key.startswith(("llama.", "general."))}
    fields |= {f"llama.{name}" for name in ACTED_ON}
    fields |= {f"llama.rope.scaling.{name}" for name in ("type", "factor", "original_context_length")}
    sound = 0
    for key, value in product(fields, ANY):
        said = replace(model, metadata={**model.metadata, "llama.rope.scaling.factor": 2.0, key: value})
        with suppress(CheckpointError):
            config = read_config(said)
            check_numbers(file, config)
            check_heads(file, config)
            read_arch(config)
            sound += 1
        read_generation(said)
        stored_as(said)
    assert 0 < sound < len(fields) * len(ANY)


# --- what it may take

LLAMA = (  # a configuration with nothing wrong, in front of what is
    entry(b"general.architecture", STRING, text(b"llama")),
    entry(b"tokenizer.ggml.model", STRING, text(b"gpt2")),
    entry(b"llama.attention.layer_norm_rms_epsilon", FLOAT32, struct.pack("<f", 1e-5)),
    *(
        entry(b"llama." + name, UINT32, u32(number))
        for name, number in {
            b"embedding_length": 64,
            b"block_count": 1,
            b"feed_forward_length": 64,
            b"attention.head_count": 1,
            b"context_length": 64,
        }.items()
    ),
)
TABLE = tensor(b"token_embd.weight", [64, 64])
BOMBS: dict[str, tuple[bytes, int]] = {  # files as large as what they claim; where there are no bytes, there are holes
    "as many strings as may be": (gguf(entry(b"a", ARRAY, array(STRING, MAX_STRINGS)), counts=(1, 1)), SPARSE),
    "one string more": (gguf(entry(b"a", ARRAY, array(STRING, MAX_STRINGS + 1))), SPARSE),
    "text as long as may be": (gguf(entry(b"a", STRING, u64(MAX_BYTES - 100))), SPARSE),
    "numbers without end": (gguf(entry(b"tokenizer.ggml.scores", ARRAY, array(FLOAT32, 1 << 30))), SPARSE),
    "60,000 keys of nothing": (gguf(counts=(1, 60_000), tensors=()), SPARSE),
    "60,000 tensors of nothing": (gguf(counts=(60_000, 0), tensors=()), SPARSE),
    "a tensor of 8 GB": (gguf(NAME, tensors=[tensor(b"token_embd.weight", [1 << 15, 1 << 16])]), SPARSE),
    "strings of two letters": (
        gguf(
            *LLAMA,
            entry(b"tokenizer.ggml.tokens", ARRAY, array(STRING, MAX_STRINGS, text(b"ab") * MAX_STRINGS)),
            tensors=[TABLE],
        ),
        SPARSE,
    ),
    "as many scores as may be": (
        gguf(
            *LLAMA,
            entry(b"tokenizer.ggml.tokens", ARRAY, array(FLOAT32, MAX_NUMBERS, b"abcd" * MAX_NUMBERS)),
            tensors=[TABLE],
        ),
        SPARSE,
    ),
}
CHILD = """
import sys, time
from pathlib import Path
from localspec.models.bounds import check_heads, check_numbers
from localspec.models.checkpoint import open_snapshot
from localspec.core.errors import CheckpointError
for name in sys.argv[1:]:
    before = time.process_time()
    try:
        open_snapshot(Path(name))
    except CheckpointError as fault:
        assert "\\n" not in str(fault)
        message = fault.message
    else:
        message = "opened"
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
    print(peak, time.process_time() - before, message, sep="|")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_file_takes_the_machine(tmp_path: Path):
    """Each ends in a sentence, in seconds of the processor, and within 500 MB of the process that reads them all: as it
    is, and with 16 GB of holes behind it, so that where it ends refutes nothing."""
    attacks = [*((raw, size) for raw, _ in ATTACKS.values() for size in (0, SPARSE)), *BOMBS.values()]
    files = [save(tmp_path, raw, str(index), size) for index, (raw, size) in enumerate(attacks)]
    done = subprocess.run([sys.executable, "-c", CHILD, *files], capture_output=True, text=True, check=True)
    lines = [line.split("|", 2) for line in done.stdout.splitlines()]
    assert len(lines) == len(files)
    for peak, seconds, message in lines:
        assert int(peak) << 10 < 500 << 20, message
        assert float(seconds) < 10, message
        assert message != "opened"
    assert [message for _, _, message in lines[-2:]] == [
        f"{files[-2]} has 1,572,864 tokens, more than 524,288.",
        f"{files[-1]} has 2,097,152 tokens, more than 524,288.",
    ]
