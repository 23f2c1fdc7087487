"""Renders conversations with a model folder's chat template, as transformers 5.24 does: Jinja2's sandbox, the same
settings, filters and functions. Exit code 4 where Jinja2 (Debian package python3-jinja2) is not installed.

Requests and answers are their number of bytes, a newline, and the bytes (UTF-8). The first request is {"template": text,
"variables": {...}, "date": [year, month, day]}, each later one {"messages": [...], "variables": {...}}. An answer is "="
and the text ("" for the first request), "!" and what the template says in refusing the conversation, or "?" and why it
cannot be run.

A template is a program of somebody else's. It gets no file, no network, kMemory bytes, kSeconds of CPU time for each
request, and writes at most kOutput characters.
"""
import datetime
import json
import math
import os
import random
import resource
import sys

try:
    import jinja2.constants
    import jinja2.debug
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    sys.exit(4)
# What Jinja2 and Python import when they first need it: later no file can be opened.
import encodings.ascii
import encodings.latin_1
import encodings.unicode_escape
import encodings.utf_16
import html
import pprint
import textwrap
import traceback

kMemory = 512 << 20
kSeconds = 1
kOutput = 64 << 20
kLongestReason = 300


class Refused(jinja2.TemplateError):
    pass


class TooLong(Exception):
    pass


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}: marks what the assistant wrote, for training. Its body is rendered as a macro's."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class Namespace(jinja2.utils.Namespace):
    """namespace() without names that begin with an underscore."""

    def __init__(*arguments, **values):
        self, *positional = arguments
        given = dict(*positional, **values)
        for name in given:
            check_name(name)
        jinja2.utils.Namespace.__init__(self, given)

    def __setitem__(self, name, value):
        check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)


def check_name(name):
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"the name {name!r} of a namespace begins with an underscore")


class Dict:
    """dict() without the attributes of the class."""

    def __call__(self, *arguments, **values):
        return dict(*arguments, **values)

    def fromkeys(self, *arguments, **values):
        return dict.fromkeys(*arguments, **values)


def raise_exception(message):
    raise Refused(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Template:
    def __init__(self, text, variables, date):
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, jinja2.ext.loopcontrols])
        environment.filters["tojson"] = tojson
        today = datetime.datetime(*date)
        environment.globals.update(raise_exception=raise_exception, dict=Dict(), namespace=Namespace,
                                   strftime_now=lambda form: today.strftime(form))
        self.template = environment.from_string(text)
        self.variables = variables

    def render(self, messages, variables):
        random.seed(0)  # of the filter `random`: a prompt is the same in every run
        parts, length = [], 0
        for part in self.template.generate(messages=messages, tools=None, documents=None, **{**self.variables, **variables}):
            length += len(part)
            if length > kOutput:
                raise TooLong
            parts.append(part)
        return "".join(parts)


def reason_of(error):
    text = str(error)[:10 * kLongestReason]
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= kLongestReason else text[:kLongestReason] + "..."


def limit(kind, most):
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def renew_time():
    """More than kSeconds from now on, as whole seconds of the process's CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(used.ru_utime + used.ru_stime) + kSeconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def read_request():
    size = sys.stdin.buffer.readline()
    return json.loads(sys.stdin.buffer.read(int(size))) if size else None


def write_answer(kind, text):
    try:
        answer = (kind + text).encode()
    except UnicodeEncodeError:
        answer = b"?it writes half of a surrogate pair, which is no character"
    sys.stdout.buffer.write(b"%d\n" % len(answer) + answer)
    sys.stdout.buffer.flush()


def main():
    limit(resource.RLIMIT_AS, kMemory)
    limit(resource.RLIMIT_FSIZE, 0)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NOFILE, 3)
    template = None
    while (request := read_request()) is not None:
        renew_time()
        try:
            if template is None:
                template = Template(request["template"], request["variables"], request["date"])
                write_answer("=", "")
            else:
                write_answer("=", template.render(request["messages"], request["variables"]))
        except Refused as error:
            write_answer("!", reason_of(error))
        except TooLong:
            write_answer("?", f"it writes more than {kOutput >> 20} MiB")
        except MemoryError:
            write_answer("?", f"it needs more than {kMemory >> 20} MiB of memory")
        except jinja2.TemplateSyntaxError as error:
            write_answer("?", f"line {error.lineno}: {reason_of(error.message)}")
        except Exception as error:
            write_answer("?", f"{type(error).__name__}: {reason_of(error)}")


if __name__ == "__main__":
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    try:
        main()
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)  # the program that asked has ended
