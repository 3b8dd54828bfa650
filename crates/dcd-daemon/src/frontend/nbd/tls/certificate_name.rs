//! Who a certificate is of, in words for the log.
//!
//! The signature of the certificate was verified before; but whoever made it chose the bytes, so
//! they are read like any others that come from outside.

use dcd_client::plain::is_obeyed;

/// Longest name that is shown.
const NAME_MAX: usize = 256;

/// The subject of an X.509 certificate, for example `CN=backup,O=Example`; `None` if there is none
/// to be read.
pub fn certificate_name(certificate: &[u8]) -> Option<String> {
    let mut to_be_signed = Der(Der(Der(certificate).take(tag::SEQUENCE)?).take(tag::SEQUENCE)?);
    // Version, which may be left out; serial number, algorithm, issuer, validity.
    to_be_signed.take_if(tag::CONTEXT_0);
    for tag in [tag::INTEGER, tag::SEQUENCE, tag::SEQUENCE, tag::SEQUENCE] {
        to_be_signed.take(tag)?;
    }
    let mut subject = Der(to_be_signed.take(tag::SEQUENCE)?);
    let mut name = String::new();
    while !subject.0.is_empty() && name.len() < NAME_MAX {
        let mut attributes = Der(subject.take(tag::SET)?);
        while !attributes.0.is_empty() && name.len() < NAME_MAX {
            let mut attribute = Der(attributes.take(tag::SEQUENCE)?);
            let kind = attribute_name(attribute.take(tag::OBJECT_IDENTIFIER)?);
            let (_, value) = attribute.any()?;
            if !name.is_empty() {
                name.push(',');
            }
            name += kind;
            name.push('=');
            name.extend(String::from_utf8_lossy(value).chars().map(printable).take(NAME_MAX));
        }
    }
    name.truncate(name.floor_char_boundary(NAME_MAX));
    (!name.is_empty()).then_some(name)
}

/// All names that a certificate has: common names of its subject, and its alternative names (DNS,
/// e-mail, URI, IP), each as it is written on a command line.
pub fn certificate_names(certificate: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    // What was found before something that cannot be read counts; what is behind it is not there.
    let _ = collect_names(certificate, &mut names);
    names
}

fn collect_names(certificate: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut to_be_signed = Der(Der(Der(certificate).take(tag::SEQUENCE)?).take(tag::SEQUENCE)?);
    to_be_signed.take_if(tag::CONTEXT_0);
    for tag in [tag::INTEGER, tag::SEQUENCE, tag::SEQUENCE, tag::SEQUENCE] {
        to_be_signed.take(tag)?;
    }
    let mut subject = Der(to_be_signed.take(tag::SEQUENCE)?);
    while !subject.0.is_empty() {
        let mut attributes = Der(subject.take(tag::SET)?);
        while !attributes.0.is_empty() {
            let mut attribute = Der(attributes.take(tag::SEQUENCE)?);
            let is_common_name = attribute_name(attribute.take(tag::OBJECT_IDENTIFIER)?) == "CN";
            let (_, value) = attribute.any()?;
            if is_common_name && let Ok(name) = std::str::from_utf8(value) {
                names.push(name.to_owned());
            }
        }
    }
    // The key; numbers that nobody uses; extensions.
    to_be_signed.take(tag::SEQUENCE)?;
    to_be_signed.take_if(tag::CONTEXT_1);
    to_be_signed.take_if(tag::CONTEXT_2);
    let mut extensions = Der(Der(to_be_signed.take(tag::CONTEXT_3)?).take(tag::SEQUENCE)?);
    while !extensions.0.is_empty() {
        let mut extension = Der(extensions.take(tag::SEQUENCE)?);
        let is_names = extension.take(tag::OBJECT_IDENTIFIER)? == ALTERNATIVE_NAMES;
        extension.take_if(tag::BOOLEAN);
        if !is_names {
            continue;
        }
        let mut alternatives = Der(Der(extension.take(tag::OCTET_STRING)?).take(tag::SEQUENCE)?);
        while !alternatives.0.is_empty() {
            let (kind, value) = alternatives.any()?;
            let text = || std::str::from_utf8(value).ok().map(str::to_owned);
            names.extend(match kind {
                tag::EMAIL | tag::DNS | tag::URI => text(),
                tag::IP => ip_text(value),
                _ => None,
            });
        }
    }
    Some(())
}

fn ip_text(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::Ipv4Addr::from(bytes).to_string());
    let v6 = <[u8; 16]>::try_from(bytes).map(|bytes| std::net::Ipv6Addr::from(bytes).to_string());
    v4.or(v6).ok()
}

/// The identifier of subjectAltName, 2.5.29.17.
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];

/// A name must not look like a line of the log, or like more attributes than there are.
fn printable(character: char) -> char {
    if is_obeyed(character) || matches!(character, ',' | '=' | '"') { '?' } else { character }
}

/// What an attribute is usually called.
fn attribute_name(identifier: &[u8]) -> &'static str {
    match identifier {
        [0x55, 4, 3] => "CN",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        _ => "?",
    }
}

mod tag {
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    pub(super) const CONTEXT_0: u8 = 0xa0;
    pub(super) const CONTEXT_1: u8 = 0x81;
    pub(super) const CONTEXT_2: u8 = 0x82;
    pub(super) const CONTEXT_3: u8 = 0xa3;
    pub(super) const BOOLEAN: u8 = 0x01;
    pub(super) const OCTET_STRING: u8 = 0x04;
    // Kinds of alternative names.
    pub(super) const EMAIL: u8 = 0x81;
    pub(super) const DNS: u8 = 0x82;
    pub(super) const URI: u8 = 0x86;
    pub(super) const IP: u8 = 0x87;
}

/// DER values, eaten from the front.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value, with its tag.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, value))
    }

    fn take(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.any().filter(|(tag, _)| *tag == wanted).map(|(_, value)| value)
    }

    fn take_if(&mut self, wanted: u8) {
        if self.0.first() == Some(&wanted) {
            self.any();
        }
    }
}
