"""NumPy's files, written by hand: right ones, and ones that no writer makes."""

import io
import struct
import zipfile

CODE = {
    "|b1": "?", "|i1": "b", "|u1": "B", "<i2": "h", "<u2": "H", "<i4": "i", "<u4": "I", "<i8": "q", "<u8": "Q",
    "<f2": "e", "<f4": "f", "<f8": "d", ">i8": "q", ">f4": "f",
}  # fmt: skip


def header(descr: str, shape: str, fortran: str = "False") -> bytes:
    """A header with these words, whatever they are."""
    words = descr if descr.startswith("[") else f"'{descr}'"
    text = f"{{'descr': {words}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def body(descr: str, values) -> bytes:
    """Elements one after another."""
    order = ">" if descr.startswith(">") else "<"
    return struct.pack(f"{order}{len(values)}{CODE[descr]}", *values)


def npy(descr: str, shape, values) -> bytes:
    """An array."""
    return header(descr, repr(tuple(shape))) + body(descr, list(values))


def read(data: bytes) -> tuple[str, tuple[int, ...], list]:
    """Type, shape and elements of an array that the program or `npy` wrote."""
    length = struct.unpack("<H", data[8:10])[0]
    words = eval(data[10 : 10 + length], {"__builtins__": {}})  # noqa: S307: our own file
    descr, count = words["descr"], 1
    for extent in words["shape"]:
        count *= extent
    size = struct.calcsize(f"<{CODE[descr]}")
    start = 10 + length
    return descr, words["shape"], list(struct.unpack(f"<{count}{CODE[descr]}", data[start : start + count * size]))


def start_of_body(data: bytes) -> int:
    """Where the elements begin."""
    return 10 + struct.unpack("<H", data[8:10])[0]


def npz(members: dict[str, bytes], compression=zipfile.ZIP_STORED) -> bytes:
    """An archive of arrays."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), data)
    return out.getvalue()
