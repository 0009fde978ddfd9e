"""Reads a client's security settings from Kafka's properties, and opens connections with TLS and SASL.

Rules
1. No message, repr or file contains a secret: errors name keys and lines, never values.
2. Security settings that this client does not support are refused by their keys before it connects. Keys that
   are not about security are ignored, and listed in `ignored`.
3. TLS checks the broker's certificate and its name, unless ssl.endpoint.identification.algorithm is empty, as
   in Kafka.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from floodmark.harness.client.classify import name_of
from floodmark.harness.client.connection import Connection, Dial, Lost, Unsent, connect
from floodmark.harness.errors import UsageError

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_REFUSED_MECHANISM = 33
_ABOUT_SECURITY = re.compile(r"(ssl|sasl|security)\.")
_LINE = re.compile(r"([^=:\s]+)\s*[=:]\s*(.*)")
_JAAS_FIELD = re.compile(r"""\b(username|password)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;]+)""")
_PEM_STORE = {"ssl.truststore.location": "ssl.truststore.type", "ssl.keystore.location": "ssl.keystore.type"}
_KNOWN = frozenset({
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password",
    "sasl.jaas.config", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
    "ssl.key.password", "ssl.endpoint.identification.algorithm", *_PEM_STORE, *_PEM_STORE.values(),
})


class Refused(Unsent):
    """By the broker, or by the client; the text says why, without a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The security settings of a client, read by read_client_config."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    ca: str | None = None  # PEM files
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_names: bool = True
    ignored: tuple[str, ...] = ()  # keys of the file that are not about security

    def dial(self) -> Dial:
        """Opens connections with these settings. FloodmarkError where a certificate cannot be read."""
        context = self._tls() if self.protocol in ("SSL", "SASL_SSL") else None

        async def open_connection(host: str, port: int, timeout_s: float) -> Connection:
            try:
                connection = await connect(host, port, timeout_s, tls=context)
            except Unsent as error:
                if isinstance(error.__cause__, ssl.SSLError):
                    raise Refused(f"no TLS with {host}:{port}: {error.__cause__.reason}") from error
                raise
            if self.protocol.startswith("SASL"):
                try:
                    await self._authenticate(connection, timeout_s)
                except Refused:
                    connection.abort()
                    raise
            return connection

        return open_connection

    def library_settings(self) -> Mapping[str, str]:
        """The same settings for librdkafka, with secrets."""
        named = {
            "security.protocol": self.protocol, "sasl.mechanism": self.mechanism,
            "sasl.username": self.username, "sasl.password": self.password, "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate, "ssl.key.location": self.key,
            "ssl.key.password": self.key_password,
            "ssl.endpoint.identification.algorithm": "https" if self.checks_names else "none"}
        return {key: value for key, value in named.items() if value}

    def _tls(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.check_hostname = self.checks_names
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, self.key_password)
        except (OSError, ValueError) as error:
            files = ", ".join(filter(None, (self.ca, self.certificate, self.key)))
            raise UsageError(f"the certificates cannot be read as PEM ({files}): "
                             f"{getattr(error, 'strerror', None) or type(error).__name__}") from None
        return context

    async def _authenticate(self, connection: Connection, timeout_s: float) -> None:
        """Raises Refused, without the broker's error text, which cannot be trusted."""
        # This imports all of kafka-python, which is half of floodmark's start.
        from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

        from floodmark.harness.client.codec import ProtocolError, ask

        async def exchange(token: bytes) -> bytes:
            answer = await ask(connection, SaslAuthenticateRequest, timeout_s, auth_bytes=token)
            if answer.error_code:
                raise Refused("the broker refuses the user name or the password")
            return bytes(answer.auth_bytes)

        try:
            answer = await ask(connection, SaslHandshakeRequest, timeout_s, mechanism=self.mechanism)
            if answer.error_code == _REFUSED_MECHANISM:
                raise Refused(f"the broker does not support the SASL mechanism {self.mechanism}")
            if answer.error_code:
                raise Refused(f"the broker refuses SASL: {name_of(answer.error_code)}")
            if self.mechanism == "PLAIN":
                await exchange(f"\0{self.username}\0{self.password}".encode())
                return
            from kafka.net.sasl.scram import ScramClient

            scram = ScramClient(self.username.replace("=", "=3D").replace(",", "=2C"), self.password,
                                self.mechanism)
            scram.process_server_first_message(await exchange(scram.first_message()))
            scram.process_server_final_message(await exchange(scram.final_message()))
        except (Lost, ProtocolError, KeyError, ValueError) as error:
            raise Refused("SASL authentication did not complete") from error


def read_client_config(file: Path) -> Security:
    """Read a file of Kafka's client properties. UsageError names the key that is wrong or not supported."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or 'no UTF-8'}") from None
    keys: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        joined = line.strip()
        while joined.endswith("\\"):
            joined = joined[:-1] + next(lines, (number, ""))[1].strip()
        if joined and joined[0] not in "#!":
            if (match := _LINE.fullmatch(joined)) is None:
                raise UsageError(f"{file}, line {number}, is not KEY=VALUE")
            keys[match[1]] = match[2]
    return _security(keys, str(file))


def _security(keys: Mapping[str, str], source: str) -> Security:
    def refuse(why: str) -> UsageError:
        return UsageError(f"{source}: {why}")

    protocol = keys.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise refuse(f"security.protocol is not one of {', '.join(_PROTOCOLS)}")
    if unsupported := sorted(key for key in keys if _ABOUT_SECURITY.match(key) and key not in _KNOWN):
        raise refuse(f"this client does not support {', '.join(unsupported)}; it supports "
                     f"{', '.join(sorted(_KNOWN))}")
    for store, kind in _PEM_STORE.items():
        if store in keys and keys.get(kind, "JKS").upper() != "PEM":
            raise refuse(f"{store} is not a PEM file, by {kind}: export it as PEM (keytool -exportcert "
                         f"-rfc), and set {kind}=PEM, or use ssl.ca.location, ssl.certificate.location and "
                         f"ssl.key.location")
    mechanism = keys.get("sasl.mechanism", keys.get("sasl.mechanisms", "")).upper()
    jaas = {name: re.sub(r"\\(.)", r"\1", word[1:-1]) if word[0] in "\"'" else word
            for name, word in _JAAS_FIELD.findall(keys.get("sasl.jaas.config", ""))}
    username, password = (keys.get(f"sasl.{name}", jaas.get(name, "")) for name in ("username", "password"))
    if protocol.startswith("SASL"):
        if mechanism not in _MECHANISMS:
            raise refuse(f"sasl.mechanism is not one of {', '.join(_MECHANISMS)}")
        if not username or not password:
            raise refuse("sasl.username and sasl.password, or a sasl.jaas.config with both, are missing")
    return Security(
        protocol=protocol, mechanism=mechanism if protocol.startswith("SASL") else "",
        username=username, password=password,
        ca=keys.get("ssl.ca.location") or keys.get("ssl.truststore.location"),
        certificate=keys.get("ssl.certificate.location") or keys.get("ssl.keystore.location"),
        key=keys.get("ssl.key.location") or keys.get("ssl.keystore.location"),
        key_password=keys.get("ssl.key.password"),
        checks_names=keys.get("ssl.endpoint.identification.algorithm", "https").lower() not in ("", "none"),
        ignored=tuple(sorted(key for key in keys if not _ABOUT_SECURITY.match(key))))
