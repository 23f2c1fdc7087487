"""Reads GGUF files (versions 2 and 3): metadata, and tensors as float32 in pieces. Needs numpy.

Quantised tensors are rows of blocks, of 32 weights (Q4_0 to Q8_0) or 256 (Q2_K to Q6_K). A block has its scales as f16, and a
K block small integers that multiply those for each 16 or 32 weights. unpack() has a function per type; each takes blocks as an
array of bytes, a row each, and returns their weights, a row each.
"""
import mmap
import struct

import numpy as np

VALUES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
PIECE = 1 << 22  # weights that are unpacked at a time


class BadFile(Exception):
    """A sentence that says what is wrong with the file."""


def halves(blocks, at, count=1):
    """f16 numbers from byte `at` of each block, as columns of float32."""
    return blocks[:, at:at + 2 * count].copy().view("<f2").astype(np.float32)


def nibbles(data):
    """All low halves of the bytes, then all high ones."""
    return np.concatenate([data & 15, data >> 4], axis=1)


def bits(blocks, at):
    """The 32 bits of the four bytes from `at`, lowest first."""
    return np.unpackbits(blocks[:, at:at + 4], axis=1, bitorder="little")


def fields(data, width, shifts):
    """`width` bits of each byte at each shift: an array [block, shift, byte]."""
    return data[:, None, :] >> np.array(shifts, np.uint8)[None, :, None] & ((1 << width) - 1)


def spread(values, scales, offsets=0.0):
    """scale * value - offset, where each scale belongs to as many neighbours: rows again."""
    rows, groups = scales.shape
    grouped = values.reshape(rows, groups, -1).astype(np.float32)
    if isinstance(offsets, np.ndarray):
        offsets = offsets[:, :, None]
    return (grouped * scales[:, :, None] - offsets).reshape(rows, -1)


def q4_0(b):
    return halves(b, 0) * (nibbles(b[:, 2:]).astype(np.float32) - 8)


def q4_1(b):
    return halves(b, 0) * nibbles(b[:, 4:]) + halves(b, 2)


def q5_0(b):
    return halves(b, 0) * ((nibbles(b[:, 6:]) | bits(b, 2) << 4).astype(np.float32) - 16)


def q5_1(b):
    return halves(b, 0) * (nibbles(b[:, 8:]) | bits(b, 4) << 4) + halves(b, 2)


def q8_0(b):
    return halves(b, 0) * b[:, 2:].view(np.int8)


def q2_k(b):
    scales, quants = b[:, :16], b[:, 16:80].reshape(-1, 32)
    values = fields(quants, 2, (0, 2, 4, 6)).reshape(len(b), 256)
    return spread(values, halves(b, 80) * (scales & 15), halves(b, 82) * (scales >> 4))


def q3_k(b):
    high, quants, packed = b[:, :32], b[:, 32:96].reshape(-1, 32), b[:, 96:108]
    low = fields(quants, 2, (0, 2, 4, 6)).reshape(len(b), 256)
    values = (low | fields(high, 1, range(8)).reshape(len(b), 256) << 2).astype(np.float32) - 4
    scales = nibbles(packed[:, :8]) | fields(packed[:, 8:], 2, (0, 2, 4, 6)).reshape(len(b), 16) << 4
    return spread(values, halves(b, 108) * (scales.astype(np.float32) - 32))


def six_bit_pairs(packed):
    """Eight scales and eight minima of 6 bits from 12 bytes."""
    first, second, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, high & 15 | first >> 6 << 4], axis=1)
    return scales, np.concatenate([second & 63, high >> 4 | second >> 6 << 4], axis=1)


def q4_k(b):
    scales, minima = six_bit_pairs(b[:, 4:16])
    values = fields(b[:, 16:].reshape(-1, 32), 4, (0, 4))
    return spread(values.reshape(len(b), 256), halves(b, 0) * scales, halves(b, 2) * minima)


def q5_k(b):
    scales, minima = six_bit_pairs(b[:, 4:16])
    low = fields(b[:, 48:].reshape(-1, 32), 4, (0, 4)).reshape(len(b), 256)
    values = low | fields(b[:, 16:48], 1, range(8)).reshape(len(b), 256) << 4
    return spread(values, halves(b, 0) * scales, halves(b, 2) * minima)


def q6_k(b):
    low = fields(b[:, :128].reshape(-1, 64), 4, (0, 4)).reshape(len(b), 256)
    high = fields(b[:, 128:192].reshape(-1, 32), 2, (0, 2, 4, 6)).reshape(len(b), 256)
    values = (low | high << 4).astype(np.float32) - 32
    return spread(values, halves(b, 208) * b[:, 192:208].view(np.int8))


def bf16(b):
    return (b.copy().view("<u2").astype(np.uint32) << 16).view(np.float32)


# By GGUF's number: name, weights and bytes of a block, its function.
TYPES = {0: ("F32", 1, 4, lambda b: b.copy().view("<f4")), 1: ("F16", 1, 2, lambda b: halves(b, 0)), 30: ("BF16", 1, 2, bf16),
         2: ("Q4_0", 32, 18, q4_0), 3: ("Q4_1", 32, 20, q4_1), 6: ("Q5_0", 32, 22, q5_0), 7: ("Q5_1", 32, 24, q5_1),
         8: ("Q8_0", 32, 34, q8_0), 10: ("Q2_K", 256, 84, q2_k), 11: ("Q3_K", 256, 110, q3_k), 12: ("Q4_K", 256, 144, q4_k),
         13: ("Q5_K", 256, 176, q5_k), 14: ("Q6_K", 256, 210, q6_k)}


def unpack(kind, data):
    """The weights of bytes that are whole blocks of a type, as float32 in one dimension."""
    _, _, size, function = TYPES[kind]
    return function(np.frombuffer(data, np.uint8).reshape(-1, size)).reshape(-1)


class Tensor:
    """`shape` has rows first, as in a Hugging Face folder."""

    def __init__(self, name, shape, kind, data):
        self.name, self.shape, self.kind, self.data = name, shape, kind, data

    @property
    def size(self):
        return int(np.prod(self.shape))

    def pieces(self):
        """float32 weights in order, some millions at a time."""
        _, weights, size, _ = TYPES[self.kind]
        step = PIECE // weights * size
        for at in range(0, len(self.data), step):
            yield unpack(self.kind, self.data[at:at + step])


class GgufFile:
    """`metadata` by key; `tensors` by name, whose bytes stay in the file until they are asked for."""

    def __init__(self, path):
        self.path, self.at = path, 0
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
        if self.take(4) != b"GGUF":
            raise BadFile(f"{path} is no GGUF file: it does not begin with 'GGUF'.")
        version = self.number("I")
        if version not in (2, 3):
            raise BadFile(f"{path} has version {version} of GGUF; 2 and 3 can be read.")
        count, keys = self.number("Q"), self.number("Q")
        self.metadata = {}
        for _ in range(keys):
            key = self.text()
            self.metadata[key] = self.value(self.number("I"))
        places = [(self.text(), self.numbers("Q", self.number("I")), self.number("I"), self.number("Q")) for _ in range(count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise BadFile(f"{path}: 'general.alignment' is {alignment!r}, where a number above 0 is expected.")
        begin = -(-self.at // alignment) * alignment
        self.tensors = {name: self.tensor(name, shape[::-1], kind, begin + offset) for name, shape, kind, offset in places}

    def take(self, count):
        if self.at + count > len(self.data):
            raise BadFile(f"{self.path} ends at byte {len(self.data)}, before its header does: it is cut off or damaged.")
        self.at += count
        return self.data[self.at - count:self.at]

    def numbers(self, kind, count):
        return struct.unpack(f"<{count}{kind}", self.take(count * struct.calcsize(f"<{kind}")))

    def number(self, kind):
        return self.numbers(kind, 1)[0]

    def text(self):
        return self.take(self.number("Q")).decode("utf-8", "replace")

    def value(self, kind):
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            of, count = self.number("I"), self.number("Q")
            return list(self.numbers(VALUES[of], count)) if of in VALUES else [self.value(of) for _ in range(count)]
        if kind not in VALUES:
            raise BadFile(f"{self.path}: there is no kind {kind} of value (at byte {self.at}): it is damaged.")
        return self.number(VALUES[kind])

    def tensor(self, name, shape, kind, at):
        if kind not in TYPES:
            raise BadFile(f"{self.path}: tensor {name} is of GGUF's type {kind}; known are {', '.join(name for name, *_ in TYPES.values())}.")
        label, weights, size, _ = TYPES[kind]
        if not shape or shape[-1] % weights:
            raise BadFile(f"{self.path}: tensor {name} has rows of {shape[-1] if shape else 0} weights, which are no whole blocks of {label}.")
        end = at + int(np.prod(shape, dtype=object)) // weights * size
        if end > len(self.data):
            raise BadFile(f"{self.path} ends at byte {len(self.data)}, and tensor {name} at byte {end}: it is cut off.")
        return Tensor(name, shape, kind, memoryview(self.data)[at:end])
