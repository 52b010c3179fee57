"""Signed decisions: only what was signed as it stands is let in, and every alteration is noticed."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from hypothesis import given, strategies as st

from turngate import verifier
from turngate.contracts import Json
from turngate.errors import ConfigError, MalformedError, NotAReviewerError, Refusal
from turngate.verifier import DecisionVerifier, claims_of, decision_hash, roles_of, sign_decision

SECRET = "a-secret-of-more-than-32-bytes-for-tests"
PRIVATE = Ed25519PrivateKey.from_private_bytes(b"7" * 32)
CALL: Json = {"approval_id": "turn-1/abc123-1", "digest": "3f0a77c1e2b94d10"}
APPROVE: Json = {**CALL, "type": "approve"}
EDIT: Json = {**CALL, "type": "edit", "edited_action": {"name": "pay", "args": {"amount": 5, "note": None}}}


def private_pem() -> str:
    return PRIVATE.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def public_pem(key: Any = None) -> str:
    public = (key or PRIVATE).public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def signed(decision: Json = APPROVE, **changes: Any) -> Json:
    options: Json = {"key": SECRET, "kid": "k1", "algorithm": "HS256", "reviewer": "ann", "expires_in": "1h"}
    return sign_decision(decision, **{**options, **changes})


def now() -> datetime:
    """Read the clock that `sign_decision` reads too: a busy machine may come to a test minutes after its import."""
    return datetime.now(UTC)


def check(decision: Json, at: datetime | None = None, keys: Any = None) -> None:
    DecisionVerifier(keys or {"k1": SECRET, "e1": public_pem()}).verify(decision, at or now())


def refusal(decision: Json, at: datetime | None = None) -> Refusal:
    with pytest.raises(NotAReviewerError) as caught:
        check(decision, at)
    [found] = caught.value.refusals
    assert found.path == ("token",)
    return found


def forged(header: Json, claims: Json, signature: bytes = b"x" * 32) -> str:
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


@pytest.mark.parametrize(
    "decision",
    [
        APPROVE,
        EDIT,
        {**CALL, "type": "reject", "message": "no"},
        {**CALL, "type": "respond", "message": "done by hand"},
        {**CALL, "type": "answer", "value": None},
        {**CALL, "type": "approve", "remember": {"scope": "turn", "match": "args", "expires_in": "1h"}},
    ],
)
def test_what_was_signed_is_let_in(decision: Json) -> None:
    """Every kind of decision can be signed, by secret or by key pair, PEM or object."""
    check(signed(decision))
    check(signed(decision, key=private_pem(), kid="e1", algorithm="EdDSA"))
    check(signed(decision, key=PRIVATE, kid="e1", algorithm="EdDSA"), keys={"e1": PRIVATE.public_key()})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"type": "edit", "edited_action": {"name": "pay", "args": {}}},
            {"type": "edit", "editedAction": {"name": "pay", "args": {}}},
        ),
        ({"type": "reject", "message": "no"}, {"type": "reject", "reason": "no"}),
        ({"type": "approve"}, {"type": "approve", "comment": None}),
        (
            {"type": "approve", "remember": {"scope": "turn", "match": "args", "expires_in": 3600}},
            {
                "type": "approve",
                "remember": {"scope": "turn", "match": "args", "expires_in": "1h", "apply_to_pending": False},
            },
        ),
    ],
)
def test_spellings_sign_the_same(one: Json, other: Json) -> None:
    """The hash is over what is meant, whichever of the accepted spellings is sent."""
    assert decision_hash(one) == decision_hash(other)


def test_the_hash_is_the_documented_one() -> None:
    """Signers in other languages can rebuild it."""
    import hashlib

    remember = {"scope": "turn", "match": "tool", "expires_in": "1h"}
    text = '{"message":"zu groß","remember":{"expires_in":3600,"match":"tool","scope":"turn"},"type":"reject"}'
    assert (
        decision_hash({"type": "reject", "message": "zu groß", "remember": remember})
        == hashlib.sha256(text.encode()).hexdigest()
    )


def test_a_missing_token_is_refused() -> None:
    """An unsigned decision is none."""
    assert "must be signed" in refusal({**APPROVE, "reviewer": "ann"}).message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"approval_id": "turn-1/abc123-2"}, "another approval"),
        ({"digest": "0" * 16}, "another call"),
        ({"digest": None}, "another call"),
        ({"reviewer": "eve"}, "another reviewer"),
        ({"reviewer": None}, "another reviewer"),
        ({"type": "reject"}, "another one than was signed"),
        ({"comment": "I never said that"}, "another one than was signed"),
        ({"remember": {"scope": "thread", "match": "tool"}}, "another one than was signed"),
    ],
)
def test_alterations_are_refused(changes: Json, words: str) -> None:
    """Nothing of a signed decision can be changed: not the call, the person, the verdict or what is remembered."""
    assert words in refusal({**signed(), **changes}).message


def test_changed_arguments_are_refused() -> None:
    """Neither can the arguments of an edit."""
    altered = {**signed(EDIT), "edited_action": {"name": "pay", "args": {"amount": 5000, "note": None}}}
    assert "another one than was signed" in refusal(altered).message


def test_time_is_given_and_counts() -> None:
    """A token holds until it expires, by the clock that is passed in."""
    decision = signed(expires_in=timedelta(minutes=5))
    check(decision, now() + timedelta(minutes=4))
    assert "expired" in refusal(decision, now() + timedelta(minutes=6)).message
    assert "future" in refusal(decision, now() - timedelta(minutes=5)).message


@pytest.mark.parametrize("header", [{"alg": "none"}, {"alg": "HS256"}, {"alg": "EdDSA"}, {"alg": "RS256"}, {}])
@pytest.mark.parametrize("kid", ["k1", "e1"])
def test_forged_tokens_are_refused(header: Json, kid: str) -> None:
    """Whatever algorithm a token asks for, the key decides, and without its signature nothing is let in."""
    claims = claims_of(signed()["token"])
    token = forged({"kid": kid, "typ": verifier.TOKEN_TYPE, **header}, claims)
    assert "forged" in refusal({**signed(), "token": token}).message


def test_a_public_key_is_no_secret() -> None:
    """A token signed by HMAC with the public key as its secret is refused (the classic confusion of algorithms)."""
    import hashlib
    import hmac

    head = forged({"alg": "HS256", "kid": "e1", "typ": verifier.TOKEN_TYPE}, claims_of(signed()["token"]), b"")
    body = head.rstrip(".")
    mac = hmac.new(public_pem().encode(), body.encode(), hashlib.sha256).digest()
    token = f"{body}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    assert "forged" in refusal({**signed(), "token": token}).message


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"kid": "k9", "typ": "turngate-decision"}, "not known"),
        ({"typ": "turngate-decision"}, "not known"),
        ({"kid": "k1", "typ": "JWT"}, "another type"),
        ({"kid": "k1", "typ": "turngate-decision", "crit": ["exp"]}, "another type"),
    ],
)
def test_tokens_for_something_else_are_refused(header: Json, words: str) -> None:
    """A good signature under another key id, or on a token of another type, counts for nothing."""
    payload = json.dumps(claims_of(signed()["token"])).encode()
    token = jwt.PyJWS().encode(payload, SECRET, "HS256", headers=header)
    assert words in refusal({**signed(), "token": token}).message


@pytest.mark.parametrize(
    "claims", [{}, {"exp": "never", "iat": 0}, {"exp": True, "iat": True}, {"iat": 0}, [1], "text"]
)
def test_incomplete_claims_are_refused(claims: Any) -> None:
    """A signed token without the claims is no signed decision."""
    token = jwt.PyJWS().encode(
        json.dumps(claims).encode(), SECRET, "HS256", headers={"kid": "k1", "typ": verifier.TOKEN_TYPE}
    )
    refusal({**signed(), "token": token})


def test_keys_rotate_by_their_id() -> None:
    """Old and new key hold side by side; a removed one does not."""
    old, new = signed(), signed(key=SECRET + "-new", kid="k2")
    both = {"k1": SECRET, "k2": SECRET + "-new"}
    check(old, keys=both)
    check(new, keys=both)
    with pytest.raises(NotAReviewerError, match="'k1', which is not known"):
        check(old, keys={"k2": SECRET + "-new"})


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "at least one key"),
        (None, "at least one key"),
        ({"k": "short"}, "at least 32"),
        ({"k": 5}, "is a int"),
        ({"": SECRET}, "no key id"),
        ({"k": private_pem()}, "public half"),
        ({"k": public_pem(generate_private_key(65537, 2048))}, "only Ed25519"),
    ],
)
def test_keys_that_make_no_sense_are_config_errors(keys: Any, words: str) -> None:
    """A verifier with a weak key, or with one that it must not have, can't be built."""
    with pytest.raises(ConfigError, match=words):
        DecisionVerifier(keys)


def test_repr_shows_no_key() -> None:
    """Keys don't end up in logs."""
    assert repr(DecisionVerifier({"k1": SECRET})) == "<DecisionVerifier: k1>"


def test_signing_needs_id_and_digest() -> None:
    """Nobody signs for a call that is not named."""
    with pytest.raises(MalformedError, match="copy both"):
        signed({"approval_id": "turn-1/abc123-1", "type": "approve"})
    with pytest.raises(MalformedError, match="unknown type"):
        signed({**CALL, "type": "nuke"})


@pytest.mark.parametrize("changes", [{"key": "short"}, {"algorithm": "none"}, {"algorithm": "EdDSA"}])
def test_signing_with_a_bad_key_is_a_config_error(changes: Json) -> None:
    """A secret that is too short, no algorithm at all, or a secret in place of a key pair."""
    with pytest.raises(ConfigError):
        signed(**changes)


def test_roles_come_with_the_token() -> None:
    """Roles are read without verifying; whoever reads them has verified before."""
    assert roles_of(signed(roles=["cfo", "dba"])["token"]) == ["cfo", "dba"]
    assert roles_of(signed()["token"]) == []


@given(
    st.one_of(st.none(), st.text(), st.from_regex(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", fullmatch=True))
)
def test_claims_of_never_raises(token: str | None) -> None:
    """Whatever the text, workflow code gets a mapping."""
    assert isinstance(claims_of(token), dict)
    assert isinstance(roles_of(token), list)


@given(st.integers(0, 400), st.integers(0, 255))
def test_any_changed_byte_of_a_token_is_noticed(position: int, byte: int) -> None:
    """No byte of a token can be another one without being refused, but for the unused bits at the end of a part."""
    decision = signed()
    token = decision["token"]
    at = position % len(token)
    changed = token[:at] + chr(byte) + token[at + 1 :]
    if jwt_bytes(changed) != jwt_bytes(token):
        refusal({**decision, "token": changed})


def jwt_bytes(token: str) -> list[bytes] | None:
    try:
        return [
            base64.b64decode(part + "=" * (-len(part) % 4), altchars="-_", validate=True) for part in token.split(".")
        ]
    except ValueError:
        return None


class Broken:
    """A verifier of somebody else's making."""

    def verify(self, decision: Json, now: datetime) -> None:
        raise KeyError("boom")


@pytest.mark.parametrize(
    ("make", "words"),
    [(lambda: None, "no verifier for agent 'main'"), (Broken, "KeyError")],
)
def test_without_a_working_verifier_nothing_is_let_in(make: Callable[[], Any], words: str) -> None:
    """It fails closed."""
    [found] = verifier.refusals_of(make(), "main", [signed()], now())
    assert found
    assert found.code == "not_a_reviewer"
    assert words in found.message


def test_one_verdict_a_decision() -> None:
    """Good and bad ones of a list are told apart by their place."""
    good = DecisionVerifier({"k1": SECRET})
    found = verifier.refusals_of(good, "main", [signed(), APPROVE, signed()], now())
    assert [one is None for one in found] == [True, False, True]


def test_the_registry_keeps_the_last_of_a_name() -> None:
    """Workers make their agents' verifiers known to the process."""
    one = DecisionVerifier({"k1": SECRET})
    verifier.register("test-registry", one)
    assert verifier.verifier_for("test-registry") is one
    assert verifier.verifier_for("test-registry/worker") is None


def test_importing_brings_no_pyjwt() -> None:
    """Signed decisions are an extra: who does not use them needs nothing for them."""
    code = "import sys, turngate.verifier, turngate.ledger; print({'jwt', 'cryptography'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"
