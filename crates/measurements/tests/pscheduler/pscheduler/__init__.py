"""The part of pScheduler's Python library that its validators import: the types that they share, and json_validate."""

import jsonschema

CARDINAL = {"type": "integer", "minimum": 1}
CARDINAL_ZERO = {"type": "integer", "minimum": 0}
PORT = {"type": "integer", "minimum": 0, "maximum": 65535}
ADDRESS = {"oneOf": [{"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"}]}
HOST_NAME = {"type": "string", "format": "hostname"}
LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
# Weeks and days, hours, minutes and seconds, each with decimals; neither years nor months.
NUMBER = r"\d+(\.\d+)?"
DURATION = rf"^P({NUMBER}W)?({NUMBER}D)?(T({NUMBER}H)?({NUMBER}M)?({NUMBER}S)?)?$"
MOMENT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?([Zz]|[+-]\d\d(:?\d\d)?)?$"

TYPES = {
    "AS": {
        "type": "object",
        "properties": {"number": CARDINAL, "owner": {"type": "string"}},
        "required": ["number"],
        "additionalProperties": False,
    },
    "Boolean": {"type": "boolean"},
    "Cardinal": CARDINAL,
    "CardinalZero": CARDINAL_ZERO,
    "Duration": {"type": "string", "pattern": DURATION},
    "Host": {"anyOf": [HOST_NAME, ADDRESS]},
    "IPAddress": ADDRESS,
    "IPPort": PORT,
    "IPPortRange": {
        "type": "object",
        "properties": {"lower": PORT, "upper": PORT},
        "required": ["lower", "upper"],
        "additionalProperties": False,
    },
    "IPTOS": {"type": "integer", "minimum": 0, "maximum": 255},
    "Integer": {"type": "integer"},
    "Number": {"type": "number"},
    "Probability": {"type": "number", "minimum": 0, "maximum": 1},
    "String": {"type": "string"},
    "Timestamp": {"type": "string", "pattern": MOMENT},
    "UUID": {"type": "string", "pattern": "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
    "URLHostPort": {"type": "string", "pattern": rf"^({LABEL}(\.{LABEL})*|\[[0-9A-Fa-f:.]+\])(:\d+)?$"},
    "ip-version": {"type": "integer", "enum": [4, 6]},
    "icmp-error": {
        "type": "string",
        "enum": [
            "net-unreachable",
            "host-unreachable",
            "protocol-unreachable",
            "port-unreachable",
            "fragmentation-needed-and-df-set",
            "source-route-failed",
            "destination-network-unknown",
            "destination-host-unknown",
            "source-host-isolated",
            "destination-network-administratively-prohibited",
            "destination-host-administratively-prohibited",
            "network-unreachable-for-type-of-service",
            "icmp-destination-host-unreachable-tos",
            "communication-administratively-prohibited",
            "host-precedence-violation",
            "precedence-cutoff-in-effect",
        ],
    },
}


def json_validate(json, skeleton, max_schema=None):
    """Whether json is as the skeleton says, which may refer to the types above; and if not, why."""
    if max_schema is not None and json.get("schema", 1) > max_schema:
        return False, "a schema that the validator does not know"
    schema = {**skeleton, "pScheduler": TYPES}
    # The validators write bounds as numbers of their own ("exclusiveMinimum": 0.0), as from draft 6 on.
    validator = jsonschema.Draft7Validator(schema, format_checker=jsonschema.FormatChecker())
    for fault in validator.iter_errors(json):
        return False, fault.message
    return True, "OK"
