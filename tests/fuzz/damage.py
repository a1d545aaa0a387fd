"""Ways to damage a file."""

import re
from random import Random

TOKEN = re.compile(rb"""[^\s",:{}\[\]()|=\\]+""")
FRAGMENTS = [
    *(b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\t", b"\r", b"\n", b"\n\n", b"\r\n", b" ", b"\x0b"),
    *(
        b"\x1c", b"\x85", b"\x1a", b'"', b"'", b"\\", b"|", b",", b"(", b")", b"*", b"_", b"#", b":", b"{", b"}", b"[",
        b"]",
    ),
    *(
        b"0", b"1", b"-1", b"7", b"0.5", b"1e30", b"1e400", b"-1e400", b"1e-320", b"-0.0", b"NaN", b"nan", b"inf",
        b"-inf",
    ),
    *(b"Infinity", b"9" * 20, b"9" * 5000, b"1_0", b"0x10", b"+1", "\u0663".encode(), "²".encode(), "−1".encode()),
    *(
        b"null", b"true", b"false", b"[]", b"{}", b'""', b"[[1]]", b'{"a": 1}', b"[null]", b"[" * 100_000,
        b'{"a":' * 50_000,
    ),
    *(
        rb"\ud800", rb"\u0000", rb"\n", rb"\q", "\u202e".encode(), "\u2028".encode(), "\u00a0".encode(),
        "\u3000".encode(),
    ),
    *("\U0010ffff".encode(), "e\u0301\u0323".encode(), "ﷺ".encode(), "İ".encode(), b"=1+1", b"../../x", b"/etc/passwd"),
    *(b"<unk>", b"<eos>", b"</s>", b"<s>", b"[CLS]", b"[SEP]", b"[MASK]", b"[PAD]", b"<|endoftext|>", b"<extra_id_0>"),
    *(
        b"B-", b"I-X", b"O", b"E-E", b"-", b"-DOCSTART-", b"#begin document (a); part 000", b"#end document", b"(0",
        b"0)",
    ),
    *(b"%s", b"{x}", b"{0}", b"$", b"$$", b"`", b"<script>", b"x" * 300, b"x" * 140_000, b"a b " * 3000),
]  # fmt: skip
LARGE = b"x" * 1_000_000  # one word of a megabyte
RARELY = 300  # one of so many cases contains it


def damaged(whole: bytes, dice: Random, others: list[bytes]) -> bytes:
    """Return `whole`, damaged in one to three ways; `others` are files that may replace it."""
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        whole = _once(whole, dice, others)
    return whole


def _once(whole: bytes, dice: Random, others: list[bytes]) -> bytes:
    place = dice.randrange(len(whole) + 1)
    lines = whole.split(b"\n")
    fragment = LARGE if dice.randrange(RARELY) == 0 else dice.choice(FRAGMENTS)
    match dice.randrange(16):
        case 0:
            return whole[:place]
        case 1:
            return whole[place:]
        case 2 if whole:
            flipped = bytearray(whole)
            for _ in range(dice.choice([1, 1, 8])):
                flipped[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
            return bytes(flipped)
        case 3:
            del lines[dice.randrange(len(lines))]
            return b"\n".join(lines)
        case 4:
            lines.insert(dice.randrange(len(lines) + 1), dice.choice(lines))
            return b"\n".join(lines)
        case 5:
            dice.shuffle(lines)
            return b"\n".join(lines)
        case 6:
            return dice.choice(
                [b"", b"\n", b" \n\t\n", b"\0" * 64, fragment, b"\xef\xbb\xbf" + whole, whole + fragment]
            )
        case 7:
            return whole.replace(b"\n", dice.choice([b"\r\n", b"\r", b"", b" ", b"\n\n", b"\x85"]))
        case 8:
            text = whole.decode("utf-8", "replace")
            return text.encode(
                dice.choice(["utf-16", "utf-16-le", "utf-32", "utf-7", "cp1252", "utf-8-sig"]), "replace"
            )
        case 9:
            return dice.choice(others)
        case 10 | 11:
            return whole[:place] + fragment + whole[place:]
    tokens = [*TOKEN.finditer(whole)]
    if not tokens:
        return whole + fragment
    token, other = dice.choice(tokens), dice.choice(tokens)
    put = other[0] if dice.randrange(4) == 0 else fragment
    return whole[: token.start()] + put + whole[token.end() :]
