"""A real S3 server on loopback (moto's, in a process of its own) that can be told to misbehave.

Run as a script it serves; `S3Server` is how tests start it and talk to it.
"""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

BUCKET = "data"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"
STRANGER = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "a-wrong-secret"}


class S3Server:
    """The server process; `close` ends it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        told = json.loads(self._process.stdout.readline())
        self.endpoint: str = told["endpoint"]
        self.credentials: dict[str, str] = told["credentials"]

    def environment(self, credentials: dict[str, str] | None = None) -> dict[str, str]:
        """The variables by which a process finds the server, and may use it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            **(self.credentials if credentials is None else credentials),
        }

    def upload(self, folder: Path, prefix: str) -> None:
        """Copy a folder into the bucket."""
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.credentials["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.credentials["AWS_SECRET_ACCESS_KEY"],
        )
        for path in folder.rglob("*"):
            if path.is_file():
                key = f"{prefix}/{path.relative_to(folder).as_posix()}"
                client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())

    def misbehave(self, fault: str, every: int) -> None:
        """From now on answer every so manieth request in a certain wrong way (0: none)."""
        self._admin("faults", {"fault": fault, "every": every})

    def counts(self) -> dict[str, int]:
        """Requests, wrong answers, and requests under way at once at most, since `misbehave`."""
        return self._admin("counts", {})

    def _admin(self, what: str, content: dict[str, Any]) -> Any:
        body = json.dumps(content).encode()
        with urllib.request.urlopen(f"{self.endpoint}/-test-/{what}", body) as answer:
            return json.load(answer)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Misbehaving:
    """A WSGI application around another one; see `S3Server.misbehave`."""

    def __init__(self, application: Callable) -> None:
        self._application = application
        self._fault, self._every = "", 0
        self._counts = {"requests": 0, "faults": 0, "at_once": 0}
        self._under_way = 0

    def __call__(self, environ: dict[str, Any], start: Callable) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/-test-/"):
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            if path.endswith("faults"):
                asked = json.loads(body)
                self._fault, self._every = asked["fault"], asked["every"]
                self._counts = dict.fromkeys(self._counts, 0)
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._counts).encode()]
        self._counts["requests"] += 1
        self._under_way += 1
        self._counts["at_once"] = max(self._counts["at_once"], self._under_way)
        if not self._every or self._counts["requests"] % self._every:
            return self._closing(self._application(environ, start))
        self._counts["faults"] += 1
        return self._closing(getattr(self, f"_{self._fault}")(environ, start))

    def _closing(self, body: Iterable[bytes]) -> Iterator[bytes]:
        try:
            yield from body
        finally:
            self._under_way -= 1

    def _unavailable(self, environ: dict[str, Any], start: Callable) -> Iterable[bytes]:
        start("503 Service Unavailable", [("Content-Type", "application/xml")])
        return [SLOW_DOWN] if environ["REQUEST_METHOD"] != "HEAD" else []

    def _dropped(self, environ: dict[str, Any], start: Callable) -> Iterable[bytes]:
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        start("200 OK", [])
        return []

    def _cut(self, environ: dict[str, Any], start: Callable) -> Iterator[bytes]:
        """Half of an answer that was announced as a whole."""
        body = b"".join(self._application(environ, start))
        yield body[: len(body) // 2]
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)


def serve() -> None:
    """Serve until killed: one bucket, one user that may read and write it."""
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"  # what is asked below needs no credentials
    import boto3
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server(
        "127.0.0.1", 0, Misbehaving(DomainDispatcherApplication(create_backend_app)), threaded=True
    )
    endpoint = f"http://127.0.0.1:{server.port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def client(service: str) -> Any:
        keys = {"aws_access_key_id": "first", "aws_secret_access_key": "first"}
        return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", **keys)

    iam = client("iam")
    client("s3").create_bucket(Bucket=BUCKET)
    iam.create_user(UserName="reader")
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    allowed = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=policy)
    credentials = {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    }
    print(json.dumps({"endpoint": endpoint, "credentials": credentials}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    serve()
