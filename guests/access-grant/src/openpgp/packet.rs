//! The packets that OpenPGP messages and keys consist of.

use std::fmt;

/// A packet: its type and its content.
pub(super) struct Packet {
    pub(super) tag: Tag,
    pub(super) body: Vec<u8>,
}

/// The type of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tag {
    Signature,
    OnePassSignature,
    PublicKey,
    Literal,
    /// A packet without meaning: a marker or padding.
    Ignored,
    Other(u8),
}

impl From<u8> for Tag {
    fn from(number: u8) -> Self {
        match number {
            2 => Self::Signature,
            4 => Self::OnePassSignature,
            6 => Self::PublicKey,
            11 => Self::Literal,
            10 | 21 => Self::Ignored,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(8) => f.write_str("with compressed content"),
            Self::Other(9 | 18 | 20) => f.write_str("with encrypted content"),
            Self::Other(number) => write!(f, "of type {number}"),
            known => write!(f, "of type {known:?}"),
        }
    }
}

/// Parses all packets of a message or key.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Packet>, String> {
    let mut reader = Reader::new(bytes);
    let mut packets = Vec::new();
    while !reader.is_at_end() {
        packets.push(packet(&mut reader)?);
    }
    Ok(packets)
}

fn packet(reader: &mut Reader<'_>) -> Result<Packet, String> {
    let header = reader.byte()?;
    match header >> 6 {
        0b11 => {
            let mut body = Vec::new();
            loop {
                let (length, is_last) = length(reader)?;
                body.extend_from_slice(reader.bytes(length)?);
                if is_last {
                    return Ok(Packet { tag: (header & 0x3f).into(), body });
                }
            }
        }
        0b10 => {
            let body = match header & 0b11 {
                3 => reader.rest(),
                size => {
                    let length = reader.number(1 << size)?;
                    reader.bytes(length)?
                }
            };
            Ok(Packet { tag: (header >> 2 & 0xf).into(), body: body.to_vec() })
        }
        _ => Err("not an OpenPGP message".to_owned()),
    }
}

/// Reads the length of a packet, or of a part of it with more parts to come.
fn length(reader: &mut Reader<'_>) -> Result<(usize, bool), String> {
    let first = reader.byte()?;
    Ok(match first {
        224..=254 => (1 << (first & 0x1f), false),
        _ => (subpacket_length(first, reader)?, true),
    })
}

/// Reads the rest of a length that begins with this byte, as subpackets of signatures have it.
pub(super) fn subpacket_length(first: u8, reader: &mut Reader<'_>) -> Result<usize, String> {
    Ok(match first {
        0..=191 => first.into(),
        192..=254 => ((usize::from(first) - 192) << 8) + usize::from(reader.byte()?) + 192,
        255 => reader.number(4)?,
    })
}

/// Returns the text of a literal packet, without its file name and date.
pub(super) fn text_of(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut reader = Reader::new(body);
    let _format = reader.byte()?;
    let name = reader.byte()?;
    reader.bytes(name.into())?;
    let _date = reader.number(4)?;
    Ok(reader.rest().to_vec())
}

/// Reads numbers and bytes from the front of a slice.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.bytes.split_at_checked(length).ok_or("it ends too early")?;
        self.bytes = rest;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, String> {
        let bytes = self.bytes(1)?;
        Ok(bytes.first().copied().unwrap_or_default())
    }

    /// Reads a number of up to four bytes, the highest first.
    pub(super) fn number(&mut self, length: usize) -> Result<usize, String> {
        let bytes = self.bytes(length)?;
        let number = bytes.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
        usize::try_from(number).map_err(|error| error.to_string())
    }

    /// Reads a multiprecision integer: its length in bits and its bytes.
    pub(super) fn integer(&mut self) -> Result<&'a [u8], String> {
        let bits = self.number(2)?;
        self.bytes(bits.div_ceil(8))
    }
}
