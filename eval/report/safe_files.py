"""Files of a run folder that a stranger may have made: no link is followed, reading or writing, and no name in them can steer a
terminal, a page or a picture. What printable() and markdown_text() do is what engine/common/printable.h and eval/report/markdown.h say.
"""
import json
import os
import re
import stat

MOST_BYTES = 1 << 30  # of a file
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]")
SYNTAX = re.compile(r"[`*~|$]|\\(?=[!-/:-@\[-`{-~])|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=[A-Za-z#])|\[(?=\^)|\](?=[(\[])|:(?=//)"
                    r"|(?<=(?<![^\W_])www)\.", re.IGNORECASE)


def printable(text, lines=False):
    """One line; with `lines`, line ends and tabs stay."""
    def spelled(match):
        if lines and match[0] in "\n\t":
            return match[0]
        units = match[0].encode("utf-16-be")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    return HIDDEN.sub(spelled, re.sub("[\ud800-\udfff]", "\ufffd", text))


def markdown_text(text):
    """Within a line of Markdown."""
    return SYNTAX.sub(lambda match: "\\" + match[0], printable(text))


def cleaned(value):
    """JSON whose texts are all printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): cleaned(item) for key, item in value.items()}
    return value


def read_bytes(path):
    """OSError for a link, a folder, a pipe or a device; FileNotFoundError where there is nothing."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"'{path}' is no regular file")
        if found.st_size > MOST_BYTES:
            raise OSError(f"'{path}' has more than {MOST_BYTES} bytes")
        return file.read(MOST_BYTES)


def read_json(path):
    return cleaned(json.loads(read_bytes(path).decode("utf-8")))


def write_bytes(path, content):
    """In one step. Where the name is a link's, the file takes its place."""
    part = f"{path}.new"
    if os.path.lexists(part):
        os.unlink(part)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(content)
    os.replace(part, path)
