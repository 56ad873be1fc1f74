"""One picture from a file: its header, and its pixels as numbers. Needs the package pillow.

Every file is read by itself and by its ending, independent of other files. Only the decoder of its ending can run.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from private_learning.records.records import Array, DataError

# A photograph of several views (MPO) is opened by the decoder of JPEG.
_FORMATS = {
    ".png": ("PNG",),
    ".jpg": ("JPEG", "MPO"),
    ".jpeg": ("JPEG", "MPO"),
    ".bmp": ("BMP",),
    ".tif": ("TIFF",),
    ".tiff": ("TIFF",),
    ".webp": ("WEBP",),
}
SUFFIXES = frozenset(_FORMATS)
EIGHT_BITS = "|u1"
# Pillow's modes for grey of more than 8 bits, with their numbers. Conversion would lose the depth.
_DEEP = {"I;16": "<u2", "I;16B": "<u2", "I;16L": "<u2", "I": "<i4", "F": "<f4"}
_GREY = {"1", "L", "LA"}
_COLOURED = {"RGB", "RGBA"}
_PALETTE = {"P", "PA"}
_ORIENTATION = 0x0112
_BITS, _PHOTOMETRIC, _SAMPLES, _SAMPLE_FORMAT = 258, 262, 277, 339
# A sample format: whole numbers with a sign.
_SIGNED = 2


class Flaw(Enum):
    """Why a file cannot be read, as the end of a sentence that counts such files."""

    UNREADABLE = "cannot be read as images of the kind that their ending names"
    TOO_LARGE = "have more pixels than is safe to unpack (PIL.Image.MAX_IMAGE_PIXELS)"
    SEVERAL_IMAGES = (
        "hold several images (pages of a TIFF, frames of an animation), of which all but the first would be left out. "
        "Write each as a separate file"
    )
    TRANSPARENT = "have transparent pixels, with values that depend on the background. Write them without transparency"
    COLOUR_SPACE = "are in a colour space such as CMYK or Lab, which is not converted. Write them as RGB"
    DEPTH = "have colours of more than 8 bits, which would lose their depth. Write them with 8 bits"
    CHANNELS = "have further channels beside grey or colours, which would be left out. Write them without"
    SIGNED = "are TIFF with numbers of 8 bits that have a sign, which would be lost. Write them with 16 bits"
    UNSIGNED = "are TIFF with whole numbers of 32 bits without a sign, of which large ones would become negative"
    WHITE_IS_ZERO = "are TIFF with more than 8 bits in which 0 is white. Write them with 0 as black"


@dataclass(frozen=True)
class Header:
    """A picture as it will be read. size: (width, height), upright. bits: 1 if the file has one bit a pixel.

    turned: the file states an orientation, which is applied.
    """

    size: tuple[int, int]
    coloured: bool
    dtype: str = EIGHT_BITS
    bits: int = 8
    turned: bool = False


def header(file: Path | IO[bytes], suffix: str) -> Header | Flaw:
    """Return the header of a picture. Its pixels are read only if it may be transparent. suffix: lower case."""
    pillow = _pillow()
    # The library may raise any error for a broken file, and its text may name the file.
    with suppress(Exception):
        try:
            with _opened(file, suffix) as image:
                return _described(image)
        except pillow.DecompressionBombError:
            return Flaw.TOO_LARGE
    return Flaw.UNREADABLE


def read_picture(file: Path | IO[bytes], suffix: str, coloured: bool, dtype: str) -> Array | None:
    """Return the pixels, (height, width), or (3, height, width) if `coloured`. None: it cannot be read so.

    One bit a pixel is read as 0 and 255. With `coloured`, grey becomes three equal colours. The orientation that a file
    states is applied.
    """
    _pillow()
    with suppress(Exception), _opened(file, suffix) as image:
        description = _described(image)
        if isinstance(description, Flaw) or description.dtype != dtype or (description.coloured and not coloured):
            return None
        upright = _upright(image)
        if dtype != EIGHT_BITS:
            return np.asarray(upright)
        return np.moveaxis(np.asarray(upright.convert("RGB")), -1, 0) if coloured else np.asarray(upright.convert("L"))
    return None


def read_class_numbers(file: Path | IO[bytes], suffix: str) -> tuple[str, Array] | None:
    """Return (kind, numbers): those of one channel, or the indices of a palette, (height, width), as in the file.

    kind: "1 bit", "palette" or "numbers". None: the file cannot be read so. Shades of 2 and 4 bits cannot, because
    Pillow scales them.
    """
    _pillow()
    with suppress(Exception), _opened(file, suffix) as image:
        raw = _raw_mode(image)
        if _pages(image) > 1 or image.width * image.height > _limit():
            return None
        if image.mode == "P":
            return "palette", np.asarray(_upright(image))
        if image.mode == "1" and not raw.endswith("I"):
            return "1 bit", np.asarray(_upright(image)).astype(np.uint8)
        if image.mode in _DEEP or (image.mode == "L" and raw == "L"):
            flaw = _tiff_flaw(image)
            return None if flaw else ("numbers", np.asarray(_upright(image)))
    return None


@contextmanager
def _opened(file: Path | IO[bytes], suffix: str) -> Generator[Any]:
    # From a path, Pillow maps an uncompressed TIFF into memory by its upright size, which mixes up the rows of a
    # rotated one.
    with (
        file.open("rb") if isinstance(file, Path) else nullcontext(file) as opened,
        _pillow().open(opened, formats=_FORMATS[suffix]) as image,
    ):
        yield image


def _described(image: Any) -> Header | Flaw:
    if image.width * image.height > _limit():
        return Flaw.TOO_LARGE
    if _pages(image) > 1:
        return Flaw.SEVERAL_IMAGES
    if flaw := _tiff_flaw(image):
        return flaw
    if image.mode not in _DEEP and _raw_mode(image).endswith("16B"):
        return Flaw.DEPTH
    coloured, mode, size = _coloured(image), str(image.mode), _upright_size(image)
    if coloured is None:
        return Flaw.COLOUR_SPACE
    # This check comes last, because it may read the pixels.
    if image.has_transparency_data and not _opaque(image):
        return Flaw.TRANSPARENT
    return Header(size, coloured, _DEEP.get(mode, EIGHT_BITS), 1 if mode == "1" else 8, _stated(image) in range(2, 9))


def _coloured(image: Any) -> bool | None:
    """Return whether the image has colours, or None if its colour space is not read."""
    if image.mode in _PALETTE:
        shades = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
        # Programs that compress files write grey pictures with a palette of greys.
        return not bool((shades == shades[:, :1]).all())
    if image.mode in _COLOURED:
        return True
    return False if image.mode in _GREY or image.mode in _DEEP else None


def _opaque(image: Any) -> bool:
    if image.mode in _DEEP:
        return False
    darkest, _ = image.convert("RGBA").getchannel("A").getextrema()
    return bool(darkest == 255)


def _tiff_flaw(image: Any) -> Flaw | None:
    """Return a flaw of a TIFF that Pillow drops or converts silently."""
    if image.format != "TIFF":
        return None
    tags, is_deep = image.tag_v2, image.mode in _DEEP
    deepest = max(cast("tuple[int, ...]", tags.get(_BITS, (1,))))
    sample_formats = cast("tuple[int, ...]", tags.get(_SAMPLE_FORMAT, (1,)))
    flaws = {
        Flaw.SIGNED: deepest <= 8 and _SIGNED in sample_formats,
        Flaw.DEPTH: deepest > 8 and not is_deep,
        Flaw.CHANNELS: tags.get(_SAMPLES, 1) > len(image.getbands()),
        Flaw.WHITE_IS_ZERO: is_deep and tags.get(_PHOTOMETRIC) == 0,
        Flaw.UNSIGNED: image.mode == "I" and deepest == 32 and sample_formats[0] == 1,
    }
    return next((flaw for flaw, is_there in flaws.items() if is_there), None)


def _raw_mode(image: Any) -> str:
    """Return Pillow's name for the pixels' layout in the file. Call it before they are loaded."""
    arguments: Any = image.tile[0][3] if image.tile else ""
    return arguments if isinstance(arguments, str) else str(arguments[0]) if arguments else ""


def _stated(image: Any) -> int:
    """Return the orientation that the file states, before the pixels are loaded. 1: upright."""
    # Image's own function does not load the pixels of a PNG.
    return int(_pillow().Image.getexif(image).get(_ORIENTATION, 1))


def _orientation(image: Any) -> int:
    """Return the orientation that is still to be applied."""
    # Pillow applies that of a TIFF itself.
    return 1 if image.format == "TIFF" else _stated(image)


def _upright_size(image: Any) -> tuple[int, int]:
    width, height = image.size
    return (height, width) if _orientation(image) in (5, 6, 7, 8) else (width, height)


def _upright(image: Any) -> Any:
    """Return the picture turned upright (Exif 2.3, tag Orientation)."""
    # A PNG may state its orientation after its pixels.
    image.load()
    turns = _pillow().Transpose
    methods = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }
    method = methods.get(_orientation(image))
    return image if method is None else image.transpose(method)


def _pages(image: Any) -> int:
    # Further images of an MPO (a camera's JPEG) are smaller or other views of the same picture.
    return 1 if image.format == "MPO" else int(getattr(image, "n_frames", 1))


def _limit() -> float:
    limit = _pillow().MAX_IMAGE_PIXELS
    return float("inf") if limit is None else float(limit)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("images need the package pillow: pip install 'wardround[images]'") from error
    # Broken files raise an error or are read. Pillow's warnings may quote their content.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    return Image
