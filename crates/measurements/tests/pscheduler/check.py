"""Holds runs, one JSON object a line, against pScheduler's validators: prints a line for each, and fails if any is not valid."""

import importlib.util
import json
import pathlib
import sys

from pscheduler import TYPES, json_validate

HERE = pathlib.Path(__file__).parent

# What archivers are handed: the envelope, by the example that pScheduler has of it.
ENVELOPE = {
    "type": "object",
    "properties": {
        "id": {"$ref": "#/pScheduler/UUID"},
        "schedule": {
            "type": "object",
            "properties": {"start": {"$ref": "#/pScheduler/Timestamp"}, "duration": {"$ref": "#/pScheduler/Duration"}},
            "required": ["start"],
        },
        "test": {"type": "object", "required": ["type", "spec"]},
        "participants": {"type": "array"},
        "result": {"type": "object"},
    },
    "required": ["id", "schedule", "test", "tool", "participants", "result"],
}


def validator(test):
    path = HERE / "validators" / f"{test}.py"
    spec = importlib.util.spec_from_file_location(f"{test}_validate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


failed = False
for line in sys.stdin:
    run = json.loads(line)
    test = run["test"]["type"]
    # latencybg runs for ever; its results have the same form.
    module = validator("latency" if test == "latencybg" else test)
    for what, (valid, why) in {
        "envelope": json_validate(run, ENVELOPE),
        "spec": module.spec_is_valid(run["test"]["spec"]),
        "result": module.result_is_valid(run["result"]),
    }.items():
        if not valid:
            failed = True
        print(f"{test} {what}: {'valid' if valid else why}")
sys.exit(failed)
