"""Names for the objects that a processor creates."""

# As in the Rust SDK: the alphabet of the names that Kubernetes itself generates.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST = 63
_64_BITS = (1 << 64) - 1


def derived_name(name: str, *identity: str) -> str:
    """Returns a name for an object made on behalf of `name`.

    It is `<name>-` and 5 characters that depend on all arguments: the same arguments always give
    the same name, in every SDK. A long `name` is cut so that the whole fits in 63 bytes.
    """
    hashed = 0xCBF29CE484222325
    for part in (name, *identity):
        text = part.encode()
        for byte in (len(text) & 0xFFFFFFFF).to_bytes(4, "little") + text:
            hashed = ((hashed ^ byte) * 0x100000001B3) & _64_BITS
    hashed = ((hashed ^ (hashed >> 33)) * 0xFF51AFD7ED558CCD) & _64_BITS
    hashed ^= hashed >> 33
    base = name.encode()[: _LONGEST - _SUFFIX - 1].decode(errors="ignore").rstrip("-.")
    suffix = ""
    for _ in range(_SUFFIX):
        suffix += _ALPHABET[hashed % 27]
        hashed //= 27
    return f"{base}-{suffix}"
