"""One picture in every mode, depth and format of file: the same numbers, or a refusal that counts and says why."""

from __future__ import annotations

import io
import logging
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from private_learning.records import DataError, list_images, read_images
from private_learning.records.pictures import Flaw, Header, header, read_class_numbers, read_picture

DRAW = np.random.default_rng(7)
GREY = DRAW.integers(0, 256, (5, 7), dtype=np.uint8)
COLOUR = DRAW.integers(0, 256, (5, 7, 3), dtype=np.uint8)
LOSSLESS = {".png": {}, ".bmp": {}, ".tif": {}, ".webp": {"lossless": True, "exact": True}}


def packed(image: Image.Image, suffix: str, **options: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    form = {".tif": "TIFF", ".jpg": "JPEG"}.get(suffix, suffix[1:].upper())
    image.save(buffer, form, **(LOSSLESS.get(suffix, {}) | options))
    buffer.seek(0)
    return buffer


def read(file: io.BytesIO, suffix: str, coloured: bool = False) -> np.ndarray | Flaw:
    """As the form of a folder of this one file would have it."""
    description = header(file, suffix)
    if isinstance(description, Flaw):
        return description
    pixels = read_picture(file, suffix, coloured or description.coloured, description.dtype)
    assert pixels is not None
    assert pixels.shape[-2:] == description.size[::-1]
    return pixels


def as_mode(mode: str, grey: np.ndarray) -> Image.Image:
    """A picture of these shades in a mode that can hold them; of 1 bit only 0 and 255 are given."""
    image = Image.fromarray(grey)
    if mode == "P":
        palette = image.copy()
        palette.putpalette(bytes(np.repeat(np.arange(256, dtype=np.uint8), 3)))
        return palette
    return image.convert(mode, dither=Image.Dither.NONE) if mode == "1" else image.convert(mode)


@settings(max_examples=80, deadline=None)
@given(
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA"]),
    suffix=st.sampled_from(sorted(LOSSLESS)),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_a_grey_picture_is_the_same_in_every_mode_and_format(
    mode: str, suffix: str, height: int, width: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    grey = draw.integers(0, 256, (height, width), dtype=np.uint8)
    if mode == "1":
        grey = np.where(grey > 127, 255, 0).astype(np.uint8)
    try:
        file = packed(as_mode(mode, grey), suffix)
    except OSError:
        # Pillow writes no such file: a BMP has no transparency beside grey.
        assert (mode, suffix) == ("LA", ".bmp")
        return
    pixels = read(file, suffix)
    assert isinstance(pixels, np.ndarray)
    np.testing.assert_array_equal(pixels, grey if pixels.ndim == 2 else np.stack([grey] * 3))
    np.testing.assert_array_equal(read(file, suffix, coloured=True), np.stack([grey] * 3))


@settings(max_examples=40, deadline=None)
@given(suffix=st.sampled_from(sorted(LOSSLESS)), mode=st.sampled_from(["RGB", "RGBA", "P"]), seed=st.integers(0, 99))
def test_a_coloured_picture_is_the_same_in_every_mode_and_format(suffix: str, mode: str, seed: int) -> None:
    colours = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    image = Image.fromarray(colours)
    file = packed(image.quantize(256) if mode == "P" else image.convert(mode), suffix)
    np.testing.assert_array_equal(read(file, suffix), np.moveaxis(colours, 2, 0))


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["<u2", ">u2", "<i2", "<i4", "<f4"]),
    suffix=st.sampled_from([".png", ".tif"]),
    seed=st.integers(0, 99),
)
def test_deep_grey_is_the_numbers_of_the_file_or_refused(kind: str, suffix: str, seed: int) -> None:
    numbers = np.random.default_rng(seed).integers(0, 30_000, (4, 5)).astype(kind)
    native = numbers.astype(numbers.dtype.newbyteorder("="))
    try:
        file = packed(Image.fromarray(native.astype(np.int32) if kind == "<i2" else native), suffix)
    except (OSError, TypeError):
        assert suffix == ".png"
        return
    pixels = read(file, suffix)
    if isinstance(pixels, np.ndarray):
        np.testing.assert_array_equal(pixels, numbers)
    else:
        assert pixels in (Flaw.UNREADABLE, Flaw.UNSIGNED)


def folder_of(path: Path, *files: tuple[io.BytesIO, str]) -> Path:
    for place, (file, suffix) in enumerate(files):
        target = path / "ab"[place % 2] / f"miller{place}{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.getvalue())
    return path


def refused(folder: Path, words: str) -> str:
    with pytest.raises(DataError, match=words) as caught:
        read_images(folder)
    assert "miller" not in str(caught.value)
    return str(caught.value)


def test_one_bit_beside_eight_bits_is_black_and_white(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="private_learning.records")
    black_and_white = np.where(GREY > 99, 255, 0).astype(np.uint8)
    files = [(packed(as_mode(mode, black_and_white), ".png"), ".png") for mode in ("1", "L", "P")]
    records = read_images(folder_of(tmp_path, *files))
    np.testing.assert_array_equal(records.inputs, np.stack([black_and_white] * 3))
    assert "1 of 3 files have 1 bit a pixel, which is read as 0 and 255" in caplog.text


def test_one_bit_alone_is_read(tmp_path: Path) -> None:
    bits = packed(as_mode("1", np.where(GREY > 99, 255, 0).astype(np.uint8)), ".bmp")
    records = read_images(folder_of(tmp_path, (bits, ".bmp"), (bits, ".bmp")))
    assert records.inputs.dtype == np.uint8
    assert set(np.unique(records.inputs)) == {0, 255}


@pytest.mark.parametrize("first", [0, 1])
def test_depths_are_never_mixed_whichever_file_comes_first(tmp_path: Path, first: int) -> None:
    files = [(packed(Image.fromarray(GREY), ".png"), ".png")]
    files.insert(first, (packed(Image.fromarray(GREY.astype(np.uint16) * 257), ".png"), ".png"))
    refused(folder_of(tmp_path, *files), r"more than 8 bits .*\(8 bits: 1, 16 bits: 1\)")


def transparent(mode: str, alpha: int) -> Image.Image:
    image = Image.fromarray(COLOUR if mode == "RGBA" else GREY).convert(mode)
    image.putalpha(alpha)
    return image


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparency_that_hides_nothing_is_dropped_and_any_other_is_refused(tmp_path: Path, mode: str) -> None:
    opaque, faint = (packed(transparent(mode, alpha), ".png") for alpha in (255, 254))
    pixels = read(opaque, ".png")
    np.testing.assert_array_equal(pixels, GREY if mode == "LA" else np.moveaxis(COLOUR, 2, 0))
    refused(folder_of(tmp_path, (opaque, ".png"), (faint, ".png")), "1 of 2 files have transparent pixels")


def test_a_transparent_colour_or_place_of_a_palette_is_refused_where_it_is_used() -> None:
    for image in (Image.fromarray(GREY), as_mode("P", GREY)):
        used, unused = int(GREY[0, 0]), next(shade for shade in range(256) if shade not in GREY)
        assert read(packed(image, ".png", transparency=used), ".png") is Flaw.TRANSPARENT
        np.testing.assert_array_equal(read(packed(image, ".png", transparency=unused), ".png"), GREY)


def png(width: int, height: int, bits: int, kind: int, rows: bytes) -> io.BytesIO:
    """By the specification of PNG (ISO/IEC 15948): header, one stream of rows, end."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    return io.BytesIO(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


def test_colours_of_16_bits_are_refused() -> None:
    assert read(png(2, 1, 16, 2, b"\0" + bytes(range(12))), ".png") is Flaw.DEPTH
    assert read(png(2, 1, 16, 4, b"\0" + bytes(range(8))), ".png") is Flaw.DEPTH
    np.testing.assert_array_equal(read(png(2, 1, 16, 0, b"\0\x01\x02\x03\x04"), ".png"), [[0x0102, 0x0304]])


def test_shades_of_2_and_4_bits_are_shades_of_grey() -> None:
    np.testing.assert_array_equal(read(png(4, 1, 2, 0, b"\0\x1b"), ".png"), [[0, 85, 170, 255]])
    np.testing.assert_array_equal(read(png(2, 1, 4, 0, b"\0\x0f"), ".png"), [[0, 255]])
    # As numbers of classes they would be 0 to 3.
    assert read_class_numbers(png(4, 1, 2, 0, b"\0\x1b"), ".png") is None


@pytest.mark.parametrize("mode", ["CMYK", "LAB", "YCbCr"])
def test_colour_spaces_that_would_have_to_be_converted_are_refused(tmp_path: Path, mode: str) -> None:
    image = Image.frombytes("LAB", (7, 5), COLOUR.tobytes()) if mode == "LAB" else Image.fromarray(COLOUR).convert(mode)
    grey = packed(Image.fromarray(GREY), ".tif")
    text = refused(folder_of(tmp_path, (packed(image, ".tif"), ".tif"), (grey, ".tif")), "1 of 2 files ")
    assert "colour space" in text or "cannot be read" in text


def tiff(
    bits: tuple[int, ...], photometric: int, data: bytes, extra: tuple[int, ...] = (), form: int = 1
) -> io.BytesIO:
    """A row of two pixels by the specification of TIFF 6.0: little-endian, one strip."""
    count = len(bits)
    rest = struct.pack(f"<{count}H", *bits)
    tags = [
        (256, 3, 1, 2), (257, 3, 1, 1), (258, 3, count, None if count > 2 else int.from_bytes(rest, "little")),
        (259, 3, 1, 1), (262, 3, 1, photometric), (273, 4, 1, -1), (277, 3, 1, count), (278, 3, 1, 1),
        (279, 4, 1, len(data)), (339, 3, 1, form),
    ]  # fmt: skip
    if extra:
        tags.insert(-1, (338, 3, len(extra), extra[0]))
    start = 8 + 2 + 12 * len(tags) + 4
    body = b"".join(
        struct.pack("<HHII", tag, kind, n, start if value is None else start + len(rest) if value == -1 else value)
        for tag, kind, n, value in tags
    )
    return io.BytesIO(b"II*\0" + struct.pack("<IH", 8, len(tags)) + body + struct.pack("<I", 0) + rest + data)


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        (tiff((8,), 1, b"\x01\x02"), [[1, 2]]),
        # 0 is white: turned round.
        (tiff((8,), 0, b"\x01\x02"), [[254, 253]]),
        (tiff((8,), 1, b"\xff\x02", form=2), Flaw.SIGNED),
        (tiff((16,), 1, b"\x01\0\x02\0"), [[1, 2]]),
        (tiff((16,), 0, b"\x01\0\x02\0"), Flaw.WHITE_IS_ZERO),
        (tiff((16,), 1, b"\xff\xff\x02\0", form=2), [[-1, 2]]),
        (tiff((32,), 1, b"\xff\xff\xff\xff\x02\0\0\0", form=1), Flaw.UNSIGNED),
        (tiff((32,), 1, b"\xff\xff\xff\xff\x02\0\0\0", form=2), [[-1, 2]]),
        (tiff((32,), 1, struct.pack("<2f", 0.5, -2), form=3), [[0.5, -2]]),
        (tiff((8, 8, 8), 2, bytes(range(6))), [[[0, 3]], [[1, 4]], [[2, 5]]]),
        (tiff((8, 8, 8, 8), 2, bytes(range(8)), extra=(0,)), Flaw.CHANNELS),
        (tiff((16, 16, 16), 2, bytes(range(12))), Flaw.DEPTH),
    ],
    ids=[
        "grey",
        "white",
        "8 signed",
        "16",
        "16 white",
        "16 signed",
        "32 unsigned",
        "32",
        "float",
        "rgb",
        "rgbx",
        "rgb 16",
    ],
)
def test_tiff_is_what_its_tags_say_or_refused(file: io.BytesIO, wanted: Any) -> None:
    pixels = read(file, ".tif")
    if isinstance(wanted, Flaw):
        assert pixels is wanted
    else:
        np.testing.assert_array_equal(pixels, wanted)


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".webp"])
def test_a_picture_is_read_as_its_file_says_that_it_lies(tmp_path: Path, suffix: str, turn: int) -> None:
    """Against Pillow's own reading of the tag, which takes another path through its code."""
    image = Image.fromarray(COLOUR)
    exif = Image.Exif()
    exif[0x0112] = turn
    quality = {"quality": 100, "subsampling": 0} if suffix == ".jpg" else {}
    file, plain = packed(image, suffix, exif=exif, **quality), packed(image, suffix, **quality)
    with Image.open(file) as opened:
        wanted = np.moveaxis(np.asarray(ImageOps.exif_transpose(opened)), 2, 0)
    pixels = read(file, suffix)
    np.testing.assert_array_equal(pixels, wanted)
    # By Exif 2.3: 6 is turned by a quarter to the right, so that the first row becomes the last column.
    if turn == 6:
        straight = read(plain, suffix)
        assert isinstance(straight, np.ndarray)
        np.testing.assert_array_equal(wanted[:, :, -1], straight[:, 0])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("turn", range(1, 9))
def test_an_uncompressed_tiff_of_a_folder_is_read_upright_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, turn: int, dtype: type[np.unsignedinteger]
) -> None:
    """By Exif 2.3, tag Orientation: which side the first row and the first column are."""
    pixels = (7 * np.arange(35)).reshape(5, 7).astype(dtype)
    upright = {
        1: pixels, 2: pixels[:, ::-1], 3: pixels[::-1, ::-1], 4: pixels[::-1],
        5: pixels.T, 6: pixels[::-1].T, 7: pixels[::-1, ::-1].T, 8: pixels[:, ::-1].T,
    }[turn]  # fmt: skip
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.fromarray(pixels).save(tmp_path / name / "1.tif", tiffinfo={274: turn})
    with caplog.at_level(logging.INFO):
        np.testing.assert_array_equal(read_images(tmp_path).inputs, np.stack([upright] * 2))
    assert ("2 of 2 files state an orientation" in caplog.text) == (turn > 1)


def test_turned_pictures_of_two_shapes_are_refused_in_words(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.fromarray(COLOUR)
    folder = folder_of(tmp_path, (packed(image, ".png", exif=exif), ".png"), (packed(image, ".png"), ".png"))
    refused(folder, "one width and height first .1 of 2 files state an orientation, and are read upright")


def test_only_the_decoder_that_the_ending_names_runs(tmp_path: Path) -> None:
    inside = packed(Image.fromarray(GREY), ".bmp")
    refused(
        folder_of(tmp_path, (inside, ".png"), (inside, ".bmp")), "1 of 2 files cannot be read as images of the kind"
    )
    postscript = io.BytesIO(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 7 5\n%%EndComments\nshowpage\n")
    assert header(postscript, ".png") is Flaw.UNREADABLE


def test_a_file_that_would_unpack_into_too_much_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = png(20_000, 20_000, 1, 0, b"\0")
    refused(
        folder_of(tmp_path, (huge, ".png"), (packed(Image.fromarray(GREY), ".png"), ".png")), "1 of 2 files have more"
    )
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 34)
    # Pillow warns from the limit on, and raises from twice the limit on.
    assert header(packed(Image.fromarray(GREY), ".png"), ".png") is Flaw.TOO_LARGE


@settings(max_examples=150, deadline=None)
@given(
    suffix=st.sampled_from([".png", ".jpg", ".bmp", ".tif", ".webp"]),
    place=st.floats(0, 1, exclude_max=True),
    value=st.integers(0, 255),
    cut=st.booleans(),
)
def test_broken_bytes_never_end_in_anything_but_a_count(suffix: str, place: float, value: int, cut: bool) -> None:
    data = bytearray(packed(Image.fromarray(COLOUR), suffix).getvalue())
    at = int(place * len(data))
    data[at] = value
    file = io.BytesIO(bytes(data[:at] if cut else data))
    description = header(file, suffix)
    if isinstance(description, Header):
        read_picture(io.BytesIO(file.getvalue()), suffix, description.coloured, description.dtype)


@pytest.mark.parametrize("pixels", [GREY.astype(np.uint16), COLOUR], ids=["depth", "colours"])
def test_a_picture_that_becomes_another_kind_is_counted_and_not_converted(tmp_path: Path, pixels: np.ndarray) -> None:
    grey = packed(Image.fromarray(GREY), ".png")
    records = list_images(folder_of(tmp_path, (grey, ".png"), (grey, ".png")))
    Image.fromarray(pixels).save(tmp_path / "a" / "miller0.png")
    with pytest.raises(DataError, match="1 of 2 files cannot be read as images"):
        records.read([0, 1])


def test_a_truncated_picture_is_counted_when_it_is_read(tmp_path: Path) -> None:
    whole = packed(Image.fromarray(DRAW.integers(0, 256, (40, 40), dtype=np.uint8)), ".png")
    cut = io.BytesIO(whole.getvalue()[:300])
    refused(folder_of(tmp_path, (whole, ".png"), (cut, ".png")), "1 of 2 files cannot be read as images")
