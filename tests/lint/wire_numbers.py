"""F61: numbers on the wire are given once. Collects them from .proto files and from the C++ enums that travel, and compares
with the checked-in record: a number keeps its name and type for ever, or is reserved once its field is gone."""

import re

# C++ enums whose values travel in frames.
CPP_ENUMS = {"transport/frame.h": ("FrameType", "FrameFlag"), "core/part.h": ("PartResult",),
             "core/miss_reason.h": ("MissReason",)}


def _strip(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def proto_numbers(text):
    """({scope: {number: "type name"}}, {scope: {reserved numbers}}, [complaints]) of one .proto file."""
    fields, reserved, complaints, stack = {}, {}, [], []
    for token in re.finditer(r"([^;{}]*)([;{}])", _strip(text)):
        head, end = " ".join(token.group(1).split()), token.group(2)
        if end == "{":
            opened = re.match(r"(message|enum|oneof|service|extend|rpc)\s*(\w*)", head)
            kind, name = opened.groups() if opened else ("?", "?")
            stack.append((kind, name))
            continue
        if end == "}":
            if stack:
                stack.pop()
            continue
        # A oneof shares its message's numbers.
        scope = ".".join(name for kind, name in stack if kind in ("message", "enum"))
        if not scope:
            continue
        if head.startswith("reserved"):
            for low, high in re.findall(r"(\d+)(?:\s+to\s+(\d+))?", head):
                reserved.setdefault(scope, set()).update(range(int(low), int(high or low) + 1))
            continue
        field = re.match(r"(?:optional |repeated |required )?(.*?)\s*=\s*(-?\d+)", head)
        if not field or re.match(r"option\b", head):
            continue
        repeated = "repeated " if head.startswith("repeated ") else ""
        _record(fields, complaints, scope, int(field.group(2)), repeated + field.group(1))
    for scope, numbers in reserved.items():
        for number in sorted(numbers & set(fields.get(scope, {}))):
            complaints.append(f"{scope}: {number} is reserved and in use")
    return fields, reserved, complaints


def cpp_enum_numbers(text, names):
    """The same for `enum class NAME : type { kA = 1, ... }`; every enumerator has to be written with its number."""
    fields, complaints, text = {}, [], _strip(text)
    for name in names:
        match = re.search(r"\benum\s+(?:class\s+)?" + name + r"\b[^{;]*\{(.*?)\}", text, re.DOTALL)
        if not match:
            complaints.append(f"{name}: enum not found")
            continue
        for entry in filter(None, (part.strip() for part in match.group(1).split(","))):
            value = re.fullmatch(r"(\w+)\s*=\s*(\d+)", entry)
            if not value:
                complaints.append(f"{name}: {entry} has no number of its own")
                continue
            _record(fields, complaints, name, int(value.group(2)), value.group(1))
    return fields, {}, complaints


def _record(fields, complaints, scope, number, name):
    known = fields.setdefault(scope, {})
    if number in known:
        complaints.append(f"{scope}: {number} is both \"{known[number]}\" and \"{name}\"")
    else:
        known[number] = name


def compare(recorded, fields, reserved):
    """Complaints about numbers that changed, went without being reserved, or are not recorded yet."""
    complaints = []
    for scope, numbers in recorded.items():
        now = fields.get(scope, {})
        for text, name in numbers.items():
            number = int(text)
            if number in now and now[number] != name:
                complaints.append(f"{scope}: {number} was \"{name}\" and is now \"{now[number]}\"; numbers are given once")
            elif number not in now and number not in reserved.get(scope, set()):
                complaints.append(f"{scope}: {number} (\"{name}\") is gone without `reserved {number}`")
    for scope, numbers in fields.items():
        for number, name in numbers.items():
            if str(number) not in recorded.get(scope, {}):
                complaints.append(f"{scope}: {number} \"{name}\" is not recorded; run tidy.py --record")
    return complaints


def merge(recorded, fields):
    """The record with new numbers added; what is recorded stays as it is."""
    merged = {scope: dict(numbers) for scope, numbers in recorded.items()}
    for scope, numbers in fields.items():
        for number, name in numbers.items():
            merged.setdefault(scope, {}).setdefault(str(number), name)
    return {scope: dict(sorted(merged[scope].items(), key=lambda row: int(row[0]))) for scope in sorted(merged)}
