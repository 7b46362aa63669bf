//! TLS sessions of our own: version 1.3 only, throw-away certificates, nothing resumed, nothing early.
//!
//! A certificate says nothing here, so none is checked beyond that the peer has its key: who the peer is, it proves
//! afterwards by a secret that both know, over keying material of the session.

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme,
};
use std::io;
use std::sync::{Arc, OnceLock};

const NAME: &str = "paceline";

/// The dialing side of a new session.
pub(crate) fn client() -> io::Result<Connection> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = made_once(&CONFIG, client_config)?;
    let name = ServerName::try_from(NAME).expect("it is a name");
    Ok(ClientConnection::new(config, name).map_err(io::Error::other)?.into())
}

/// The listening side of a new session.
pub(crate) fn server() -> io::Result<Connection> {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    let config = made_once(&CONFIG, server_config)?;
    Ok(ServerConnection::new(config).map_err(io::Error::other)?.into())
}

fn made_once<T>(place: &OnceLock<Arc<T>>, make: fn() -> io::Result<T>) -> io::Result<Arc<T>> {
    if let Some(made) = place.get() {
        return Ok(made.clone());
    }
    let made = Arc::new(make()?);
    Ok(place.get_or_init(|| made).clone())
}

/// The fastest suite first: on the machines we know it is the one with hardware for it.
fn provider() -> Arc<CryptoProvider> {
    let suites = vec![
        aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256,
        aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
        aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites: suites, ..aws_lc_rs::default_provider() })
}

fn client_config() -> io::Result<ClientConfig> {
    let provider = provider();
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

fn server_config() -> io::Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed([NAME.to_string()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(io::Error::other)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

/// Takes any certificate whose key its owner has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _above: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only version 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
