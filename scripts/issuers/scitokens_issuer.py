"""An issuer of SciTokens, for tests: PyPI's scitokens, on a free port of loopback.

Prints its URL, and then one line for each command of standard input:

    mint CLAIMS             prints a token with these claims (JSON)
    allows TOKEN VERB PATH  prints whether the library's own enforcer permits it: True or False
"""

import json
import sys
import threading
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import scitokens
from cryptography.hazmat.primitives.asymmetric import ec

KEY_ID = "scitokens-1"
AUDIENCE = "https://dtn.example.org"
COORDINATE_BYTES = 32


def main():
    key = ec.generate_private_key(ec.SECP256R1())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Documents)
    issuer = f"http://127.0.0.1:{server.server_port}"
    Documents.by_path = {
        "/.well-known/oauth-authorization-server": {
            "issuer": issuer,
            "jwks_uri": f"{issuer}/keys",
        },
        "/keys": {"keys": [public_key(key)]},
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(issuer, flush=True)
    for line in sys.stdin:
        name, _, rest = line.strip().partition(" ")
        answer = {"mint": mint, "allows": allows}[name](key, issuer, rest)
        print(answer, flush=True)


class Documents(BaseHTTPRequestHandler):
    """Answers with the documents of the issuer."""

    by_path = {}

    def do_GET(self):
        document = self.by_path.get(self.path)
        body = json.dumps(document).encode()
        self.send_response(200 if document else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def public_key(key):
    numbers = key.public_key().public_numbers()

    def coordinate(number):
        encoded = urlsafe_b64encode(number.to_bytes(COORDINATE_BYTES, "big"))
        return encoded.rstrip(b"=").decode()

    return {
        "kty": "EC",
        "crv": "P-256",
        "alg": "ES256",
        "use": "sig",
        "kid": KEY_ID,
        "x": coordinate(numbers.x),
        "y": coordinate(numbers.y),
    }


def mint(key, issuer, claims):
    token = scitokens.SciToken(key=key, algorithm="ES256", key_id=KEY_ID)
    for name, value in json.loads(claims).items():
        token.update_claims({name: value})
    return token.serialize(issuer=issuer, lifetime=600).decode()


def allows(key, issuer, words):
    text, verb, path = words.split(" ", 2)
    token = scitokens.SciToken.deserialize(
        text, audience=AUDIENCE, insecure=True, public_key=public_pem(key)
    )
    enforcer = scitokens.Enforcer(issuer, audience=AUDIENCE)
    return enforcer.test(token, verb, path)


def public_pem(key):
    from cryptography.hazmat.primitives import serialization

    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


main()
