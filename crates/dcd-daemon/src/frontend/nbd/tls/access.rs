//! Which certificates may connect, and which may only read: by their names.
//!
//! An authority may have signed for many; not all of them need this disk, and some only copy it.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

use super::{certificate_name, certificate_names};

/// See the module. If both are empty every certificate may do everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsAccess {
    /// Names that may read and write.
    pub allow: Vec<String>,
    /// Names that may read, also if they are among those above.
    pub read_only: Vec<String>,
}

/// A certificate is good, and none of its names is on a list.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name} is not on the list of --tls-allow or --tls-read-only")]
pub struct NotAllowed {
    name: String,
}

impl TlsAccess {
    /// Whether a certificate, whose signature was verified, may connect.
    pub fn check(&self, certificate: &[u8]) -> Result<(), NotAllowed> {
        if self.allow.is_empty() && self.read_only.is_empty() {
            return Ok(());
        }
        let names = certificate_names(certificate);
        if has_one(&self.allow, &names) || has_one(&self.read_only, &names) {
            return Ok(());
        }
        let name =
            certificate_name(certificate).unwrap_or_else(|| "a certificate without a name".into());
        Err(NotAllowed { name })
    }

    /// Whether it may only read. One that is on no list may do what the lists leave: nothing, or
    /// everything.
    pub fn is_read_only(&self, certificate: &[u8]) -> bool {
        has_one(&self.read_only, &certificate_names(certificate))
    }
}

/// Names of machines have no case.
fn has_one(list: &[String], names: &[String]) -> bool {
    names.iter().any(|name| list.iter().any(|listed| listed.eq_ignore_ascii_case(name)))
}

/// Verifies certificates as `verifier` does, then looks for their names.
#[derive(Debug)]
pub(crate) struct ListVerifier {
    pub(crate) verifier: Arc<dyn ClientCertVerifier>,
    pub(crate) access: Arc<TlsAccess>,
}

impl ClientCertVerifier for ListVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(certificate, intermediates, now)?;
        match self.access.check(certificate) {
            Ok(()) => Ok(verified),
            Err(refused) => Err(CertificateError::Other(OtherError(Arc::new(refused))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common_name: &str, alternatives: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.distinguished_name.push(DnType::OrganizationName, "admin");
        params.subject_alt_names = alternatives;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn access(allow: &[&str], read_only: &[&str]) -> TlsAccess {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        TlsAccess { allow: names(allow), read_only: names(read_only) }
    }

    #[test]
    fn names_are_those_of_the_subject_and_its_alternatives() {
        let alternatives = vec![
            SanType::DnsName("disk.example".try_into().unwrap()),
            SanType::Rfc822Name("me@example".try_into().unwrap()),
            SanType::URI("urn:disk".try_into().unwrap()),
            SanType::IpAddress("192.0.2.7".parse().unwrap()),
            SanType::IpAddress("2001:db8::7".parse().unwrap()),
        ];
        let certificate = certificate("backup", alternatives);
        let names =
            ["backup", "disk.example", "me@example", "urn:disk", "192.0.2.7", "2001:db8::7"];
        assert_eq!(certificate_names(&certificate), names);
        for name in names {
            assert!(access(&[name], &[]).check(&certificate).is_ok(), "{name}");
            assert!(access(&["other"], &[name]).is_read_only(&certificate), "{name}");
        }
        assert!(access(&["DISK.Example"], &[]).check(&certificate).is_ok());
        // Neither a part of a name nor the name of something else.
        for name in ["back", "backup2", "admin", "CN=backup", "example", ""] {
            assert!(access(&[name], &[]).check(&certificate).is_err(), "{name}");
        }
        // What is cut off has no more names than before, and breaks nothing.
        for end in 0..certificate.len() {
            assert!(certificate_names(&certificate[..end]).len() <= names.len());
        }
    }

    #[test]
    fn lists_say_who_may_connect_and_who_may_write() {
        let (writer, reader, other) = (
            certificate("writer", vec![]),
            certificate("reader", vec![]),
            certificate("x", vec![]),
        );
        let lists = access(&["writer"], &["reader"]);
        assert!(lists.check(&writer).is_ok() && !lists.is_read_only(&writer));
        assert!(lists.check(&reader).is_ok() && lists.is_read_only(&reader));
        let refused = lists.check(&other).unwrap_err().to_string();
        assert_eq!(refused, "CN=x,O=admin is not on the list of --tls-allow or --tls-read-only");
        let all = TlsAccess::default();
        assert!(all.check(&other).is_ok() && !all.is_read_only(&other));
        assert!(access(&[], &["reader"]).check(&writer).is_err());
    }
}
