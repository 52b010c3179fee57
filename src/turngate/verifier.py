"""Signed decisions: who decided is proven by a signature, not only stated.

Somebody whom the reviewers trust (an approval page behind single sign-on, say) signs each decision with
`sign_decision`; the token travels with the decision. The agent's DecisionVerifier refuses what is not signed so.

A token is a compact JWS (RFC 7515) of the type `turngate-decision` over these claims:

    approval_id, digest   the call that is decided about
    decision              SHA-256 in hex over what is decided, see `decision_hash`
    reviewer, roles?      who decided; the roles count where the agent asks for `role:x`
    iat, exp              when it was signed and until when it may be used, in seconds since 1970

It binds one decision about one call, so whoever sees it can only send the very same decision again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard

from turngate import decisions
from turngate.contracts import Json
from turngate.decisions import Decision
from turngate.durations import seconds
from turngate.errors import ConfigError, Refusal, RefusedError, refuse

if TYPE_CHECKING:
    from datetime import timedelta

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    VerifyKey = str | bytes | Ed25519PublicKey
    SigningKey = str | bytes | Ed25519PrivateKey

Algorithm = Literal["HS256", "EdDSA"]
TOKEN_TYPE = "turngate-decision"
"""The header `typ`: a token that the same key signed for another purpose is no decision (RFC 8725, 3.11)."""
REASSIGN = "reassign"
"""The `type` under which a request to reassign is signed; otherwise it would let anybody in among the reviewers."""
CLOCK_SKEW = 60.0
"""Seconds that the signer's clock may be ahead of the server's."""
SHORTEST_SECRET = 32

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_APART = ("approval_id", "digest", "reviewer", "token")
"""Fields that are claims of their own, or the token itself: not part of the decision's hash."""


class Verifier(Protocol):
    """What an agent needs of its verifier. Your own must know the same claims in the token."""

    def verify(self, decision: Json, now: datetime) -> None:
        """Raise RefusedError where the decision is not signed as it should be. Reads no clock and changes nothing."""
        ...


class DecisionVerifier:
    """Accept decisions only with a signature by one of these keys, by key id (`kid`).

    A key is a secret of at least 32 bytes (HS256), or an Ed25519 public key (EdDSA) as PEM text or as an object of
    `cryptography`. Rotate by adding the new key before the signer uses it and removing the old one when its last
    tokens have expired. The algorithm follows from the key and never from the token.

    Needs `pip install "turngate[crypto]"`. Raises ConfigError for keys that can't be used.
    """

    def __init__(self, keys: Mapping[str, VerifyKey]) -> None:
        self._jwt = _pyjwt()
        if not isinstance(keys, Mapping) or not keys:
            raise ConfigError("a DecisionVerifier needs at least one key: {'<kid>': <secret or Ed25519 public key>}")
        self._keys = {kid: _verify_key(kid, key) for kid, key in keys.items()}

    def __repr__(self) -> str:
        return f"<DecisionVerifier: {', '.join(self._keys)}>"

    def verify(self, decision: Json, now: datetime) -> None:
        """Raise RefusedError (`not_a_reviewer`, path `token`) unless the decision is signed as it stands.

        `decision` is one decision with its `approval_id`, in any of the accepted spellings. `now` decides about `exp`.
        """
        asked = _read(decision)
        try:
            if not asked.token:
                raise _Bad("decisions of this agent must be signed, and this one has no 'token'")
            claims = self._claims(asked.token)
            _check_times(claims, now.timestamp())
            _check_subject(claims, asked)
        except _Bad as bad:
            about = f"approval {asked.approval_id!r}: " if asked.approval_id else ""
            raise refuse("not_a_reviewer", f"{about}{bad}", "token", approval_id=asked.approval_id) from None

    def _claims(self, token: str) -> Json:
        """Return the claims of a token that one of the keys has signed."""
        header = _header_of(token)
        kid = header.get("kid")
        if not isinstance(kid, str) or kid not in self._keys:
            raise _Bad(f"its token names the key {str(kid)[:100]!r}, which is not known here")
        if header.get("typ") != TOKEN_TYPE or "crit" in header:
            raise _Bad(f"its token is of another type than {TOKEN_TYPE!r}")
        algorithm, key = self._keys[kid]
        try:
            # Only the signature: PyJWT's check of the claims reads the clock, and ours comes in as an argument.
            verified = self._jwt.PyJWS().decode_complete(token, key, algorithms=[algorithm])
            claims = decisions.loads(verified["payload"])
        except (self._jwt.InvalidTokenError, RefusedError):
            raise _Bad("its token is forged or damaged: the signature does not fit") from None
        if not isinstance(claims, dict):
            raise _Bad("its token has no claims")
        return claims


def sign_decision(
    decision: Json,
    *,
    key: SigningKey,
    kid: str,
    algorithm: Algorithm,
    reviewer: str,
    expires_in: timedelta | float | str,
    roles: Sequence[str] = (),
) -> Json:
    """Return the decision with `reviewer` and `token`, ready to be sent.

    `decision` needs `approval_id` and `digest`: who signs must know which call it is. `key` is the secret (HS256) or
    an Ed25519 private key (EdDSA) as PEM text or object; `kid` the name under which the verifier knows it. `expires_in`
    has to cover the time until a worker sees the decision. Each decision of a list is signed on its own. A request
    for the update `reassign` is signed in the same way, with `"type": "reassign"` in it.

    Needs `pip install "turngate[crypto]"`. Raises MalformedError where the decision is none, ConfigError for the rest.
    """
    jwt = _pyjwt()
    signed = {**decision, "reviewer": reviewer}
    asked = _read(signed)
    if asked.approval_id is None or not asked.digest:
        raise refuse("malformed", "a decision is signed with its 'approval_id' and 'digest': copy both", "digest")
    if algorithm not in ("HS256", "EdDSA"):
        raise ConfigError(f"algorithm {algorithm!r} is not one of HS256, EdDSA")
    if algorithm == "HS256":
        key = _secret(kid, key)
    issued = time.time()
    claims = {
        "approval_id": asked.approval_id,
        "digest": asked.digest,
        "decision": _hash(asked.content),
        "reviewer": reviewer,
        **({"roles": list(roles)} if roles else {}),
        "iat": int(issued),
        "exp": int(issued + seconds(expires_in)),
    }
    payload = json.dumps(claims, separators=(",", ":")).encode()
    try:
        token = jwt.PyJWS().encode(payload, key, algorithm, headers={"kid": kid, "typ": TOKEN_TYPE})
    except (jwt.PyJWTError, TypeError, ValueError) as error:
        raise ConfigError(f"the key {kid!r} can't sign with {algorithm}: {error}") from None
    return {**signed, "token": token}


def decision_hash(decision: Json) -> str:
    """Return the claim `decision`: SHA-256, in hex, over the canonical JSON of what is decided.

    That is the decision in our spelling without `approval_id`, `digest`, `reviewer` and `token` (claims of their own),
    without fields that hold their default, with `expires_in` in seconds; keys sorted, no spaces, UTF-8.
    """
    return _hash(_read(decision).content)


def claims_of(token: str | None) -> Json:
    """Return the claims of a token WITHOUT verifying it; {} for anything that is no token.

    For workflow code, which replays: the signature was verified before, when the decision was let in. Depends on
    nothing but the token.
    """
    return _decoded(token, 1)


def roles_of(token: str | None) -> list[str]:
    """Return the roles in a token WITHOUT verifying it; see `claims_of`."""
    roles = claims_of(token).get("roles")
    return [role for role in roles if isinstance(role, str)] if isinstance(roles, list) else []


def refusals_of(verifier: Verifier | None, agent: str, signed: Sequence[Json], now: datetime) -> list[Refusal | None]:
    """Verify decisions one by one: None for each that is good. Whatever goes wrong refuses the decision."""
    return [_refusal_of(verifier, agent, decision, now) for decision in signed]


def _refusal_of(verifier: Verifier | None, agent: str, decision: Json, now: datetime) -> Refusal | None:
    try:
        if verifier is None:
            raise LookupError(f"this worker has no verifier for agent {agent!r}")
        verifier.verify(decision, now)
    except RefusedError as error:
        return error.refusals[0]
    except Exception as error:  # a verifier of somebody else's making: fail closed
        why = str(error) if isinstance(error, LookupError) and verifier is None else type(error).__name__
        approval_id = decision.get("approval_id")
        text = f"approval {approval_id!r}: the signature could not be verified ({why})"
        return Refusal("not_a_reviewer", text, ("token",), approval_id)
    return None


# --- Which verifier belongs to which agent --------------------------------------------------------------------------

_VERIFIERS: dict[str, Verifier] = {}
"""Of this process. Update validators read it; Temporal does not run those again at replay, so it may differ."""


def register(agent_name: str, verifier: Verifier) -> None:
    """Make a verifier known to this process; a worker does it for its agents. The last one of a name counts."""
    _VERIFIERS[agent_name] = verifier


def verifier_for(agent_name: str) -> Verifier | None:
    """Return the verifier of an agent, or None."""
    return _VERIFIERS.get(agent_name)


# --- Parts ----------------------------------------------------------------------------------------------------------


class _Bad(Exception):
    """Why a token does not make the decision good."""


@dataclass(frozen=True)
class _Asked:
    """What is decided, apart from the fields that are claims of their own."""

    content: Json
    approval_id: str | None
    digest: str | None
    reviewer: str | None
    token: str | None


def _read(request: Json) -> _Asked:
    """Read one decision, in any of its spellings, or a request to reassign. Raises MalformedError."""
    claimed = {field: request.get(field) for field in _APART}
    if request.get("type") == REASSIGN:
        return _Asked({"type": REASSIGN, "reviewers": request.get("reviewers")}, **claimed)
    # A list by position names its calls otherwise: an id is put in, for the form needs one.
    entry = decisions.parse({**request, "approval_id": request.get("approval_id") or "?"}).entries[0]
    if entry.decision is None:
        raise RefusedError.of([entry.refusal or Refusal("malformed", "this is no decision")])
    return _Asked(_content(entry.decision), **claimed)


def _content(decision: Decision) -> Json:
    content = decision.model_dump(mode="json", exclude_defaults=True, exclude=set(_APART))
    remember = content.get("remember", {})
    if isinstance(remember.get("expires_in"), float) and remember["expires_in"].is_integer():
        remember["expires_in"] = int(remember["expires_in"])
    return content


def _hash(content: Json) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _check_times(claims: Json, now: float) -> None:
    issued, expires = claims.get("iat"), claims.get("exp")
    if not _is_number(issued) or not _is_number(expires):
        raise _Bad("its token does not say when it was signed ('iat') and until when it holds ('exp')")
    if now >= expires:
        raise _Bad("its token has expired: sign the decision again")
    if issued > now + CLOCK_SKEW:
        raise _Bad("its token was signed in the future: compare the clocks")


def _check_subject(claims: Json, decision: _Asked) -> None:
    if claims.get("approval_id") != decision.approval_id:
        raise _Bad("its token was signed for another approval")
    if not decision.digest or claims.get("digest") != decision.digest:
        raise _Bad("its token was signed for another call: the digests differ")
    if not decision.reviewer or claims.get("reviewer") != decision.reviewer:
        raise _Bad("its token names another reviewer than the decision does")
    if claims.get("decision") != _hash(decision.content):
        raise _Bad("the decision is another one than was signed")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _header_of(token: str) -> Json:
    return _decoded(token, 0)


def _decoded(token: Any, part: int) -> Json:
    if not isinstance(token, str) or not _COMPACT.fullmatch(token):
        return {}
    try:
        text = token.split(".")[part]
        found = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _pyjwt() -> Any:
    try:
        import jwt
        from cryptography.hazmat.primitives import serialization  # noqa: F401  PyJWT needs it for EdDSA
    except ImportError:
        raise ConfigError('signed decisions need more packages: run `pip install "turngate[crypto]"`') from None
    return jwt


def _verify_key(kid: Any, key: Any) -> tuple[Algorithm, Any]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not isinstance(kid, str) or not kid:
        raise ConfigError(f"{kid!r} is no key id: name each key with a text")
    if isinstance(key, Ed25519PublicKey):
        return "EdDSA", key
    raw = key.encode() if isinstance(key, str) else key
    if isinstance(raw, bytes) and b"-----BEGIN" in raw:
        return "EdDSA", _public_key(kid, raw)
    return "HS256", _secret(kid, key)


def _secret(kid: str, key: Any) -> bytes:
    if not isinstance(key, str | bytes):
        raise ConfigError(f"key {kid!r} is a {type(key).__name__}: give a secret, or an Ed25519 key")
    raw = key.encode() if isinstance(key, str) else key
    if len(raw) < SHORTEST_SECRET:
        raise ConfigError(f"key {kid!r} has {len(raw)} bytes: a secret for HS256 needs at least {SHORTEST_SECRET}")
    return raw


def _public_key(kid: str, pem: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        found = load_pem_public_key(pem)
    except ValueError:
        raise ConfigError(f"key {kid!r} is no public key: a worker needs the public half, and nothing more") from None
    if not isinstance(found, Ed25519PublicKey):
        raise ConfigError(f"key {kid!r} is a {type(found).__name__}: only Ed25519 is taken")
    return found
