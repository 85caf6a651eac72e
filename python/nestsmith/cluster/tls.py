"""Certificates for a team: a private authority and one certificate that tracker, servers and clients share, or one for each."""

import datetime
import os
import pathlib

from .. import check

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(f"certificates need the package {e.name!r}: pip install nestsmith[cluster]") from None

__all__ = ["make_tls"]


def _write(path, data, mode):
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as f:
        f.write(data)


def _pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption())


def _certificate(name, key, issuer, issuer_key, days, ca):
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1) + min(datetime.timedelta(0), datetime.timedelta(days=days)))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
    )
    if not ca:
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        made = made.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    return made.sign(issuer_key, hashes.SHA256())


def make_tls(folder, days=3650):
    """Makes ca.pem, ca-key.pem, cert.pem and key.pem in a directory; with a ca.pem and ca-key.pem already there, only a further
    certificate of that authority.

    Returns
    -------
    list of str
        Lines for the user.

    Raises
    ------
    ValueError
        If the directory has a cert.pem already.
    """
    check.integer("days", days)
    folder = pathlib.Path(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / "cert.pem").exists():
        raise ValueError(f"{os.fspath(folder)!r} has a cert.pem already; remove it (the machines that use it lose access), or name "
                         "another directory")  # fmt: skip
    if (folder / "ca-key.pem").exists():
        ca_key = serialization.load_pem_private_key((folder / "ca-key.pem").read_bytes(), None)
        ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    else:
        ca_key = ec.generate_private_key(ec.SECP256R1())
        ca = _certificate("nestsmith private CA", ca_key, None, ca_key, max(days, 3650), True)
        _write(folder / "ca-key.pem", _pem(ca_key), 0o600)
        _write(folder / "ca.pem", ca.public_bytes(serialization.Encoding.PEM), 0o644)
    key = ec.generate_private_key(ec.SECP256R1())
    made = _certificate("nestsmith", key, ca.subject, ca_key, days, False)
    _write(folder / "key.pem", _pem(key), 0o600)
    _write(folder / "cert.pem", made.public_bytes(serialization.Encoding.PEM), 0o644)
    return [
        f"made a certificate of a private authority in {os.fspath(folder)}",
        "copy ca.pem, cert.pem and key.pem to every machine that takes part and give their directory as --tls-dir or in NESTSMITH_TLS_DIR",
        "keep ca-key.pem here: who has it can make certificates; whoever has key.pem can run programs on your devices",
    ]
