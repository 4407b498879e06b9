"""Checkpoints as bytes: read, changed and written without torch, down to each byte of a header."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIDTHS = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "U8": 1,
    "BOOL": 1,
}


@dataclass
class Tensor:
    """One tensor: its type as safetensors calls it, its shape, its bytes, row by row."""

    dtype: str
    shape: list[int]
    data: bytes

    @property
    def width(self) -> int:
        return WIDTHS[self.dtype]

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    def rows(self) -> list[bytes]:
        """The bytes of each row (of the first dimension)."""
        length = len(self.data) // self.shape[0]
        return [self.data[i * length : (i + 1) * length] for i in range(self.shape[0])]

    def of_rows(self, rows: list[bytes]) -> Tensor:
        return Tensor(self.dtype, [len(rows), *self.shape[1:]], b"".join(rows))

    def transposed(self) -> Tensor:
        rows, columns = self.shape
        cells = [self.data[i : i + self.width] for i in range(0, len(self.data), self.width)]
        turned = [cells[row * columns + column] for column in range(columns) for row in range(rows)]
        return Tensor(self.dtype, [columns, rows], b"".join(turned))

    def numbers(self) -> list[Any]:
        code = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "BOOL": "?"}
        return list(struct.unpack(f"<{self.elements}{code[self.dtype]}", self.data))

    def with_numbers(self, numbers: list[Any], dtype: str | None = None) -> Tensor:
        """The same shape with other numbers, and maybe of another type."""
        dtype = dtype or self.dtype
        if dtype == "BF16":
            whole = struct.pack(f"<{len(numbers)}f", *numbers)
            data = b"".join(whole[i + 2 : i + 4] for i in range(0, len(whole), 4))
            return Tensor(dtype, list(self.shape), data)
        code = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "BOOL": "?"}[dtype]
        return Tensor(dtype, list(self.shape), struct.pack(f"<{len(numbers)}{code}", *numbers))


@dataclass
class Model:
    """A checkpoint in memory, to be changed at will.

    `shards`: the names of the tensors in each file, in order; None: one file of all. `after`
    changes the bytes of each written weight file.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    files: dict[str, bytes]
    metadata: dict[str, str] | None = field(default_factory=lambda: {"format": "pt"})
    shards: list[list[str]] | None = None
    shard_name: str = "model-{:05}-of-{:05}.safetensors"
    padding: int = 0
    after: Callable[[bytes], bytes] = bytes
    index_extra: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.config, indent=1))
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        if self.shards is None:
            self._write(folder / "model.safetensors", list(self.tensors))
            return
        where = {}
        for number, names in enumerate(self.shards, 1):
            file = self.shard_name.format(number, len(self.shards))
            self._write(folder / file, names)
            where.update(dict.fromkeys(names, file))
        total = sum(len(tensor.data) for tensor in self.tensors.values())
        index = {"metadata": {"total_size": total}, "weight_map": where | self.index_extra}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))

    def _write(self, path: Path, names: list[str]) -> None:
        path.write_bytes(self.after(self.packed(names)))

    def packed(self, names: list[str]) -> bytes:
        """The bytes of a safetensors file with these tensors."""
        header: dict[str, Any] = {}
        if self.metadata is not None:
            header["__metadata__"] = self.metadata
        at = 0
        for name in names:
            tensor = self.tensors[name]
            end = at + len(tensor.data)
            header[name] = {
                "dtype": tensor.dtype,
                "shape": tensor.shape,
                "data_offsets": [at, end],
            }
            at = end
        text = json.dumps(header).encode() + b" " * self.padding
        text += b" " * (-len(text) % 8)
        return b"".join(
            [struct.pack("<Q", len(text)), text, *(self.tensors[name].data for name in names)]
        )


def read(folder: Path) -> Model:
    """A checkpoint of one weight file."""
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", None)
    tensors = {}
    for name, said in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = said["data_offsets"]
        body = data[8 + length + start : 8 + length + end]
        tensors[name] = Tensor(said["dtype"], said["shape"], body)
    files = {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir())
        if file.name.startswith("tokenizer")
    }
    return Model(json.loads((folder / "config.json").read_text()), tensors, files, metadata)
