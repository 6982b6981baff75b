//! Login by device code (RFC 8628), and what follows it: renewal and revocation of tokens.

use std::time::Duration;

use longhaul_proto::text::printable_within;
use longhaul_transfer::BearerToken;
use oauth2::basic::{BasicClient, BasicErrorResponseType, BasicTokenResponse};
use oauth2::{
    AuthType, ClientId, DeviceAuthorizationUrl, DeviceCodeErrorResponse,
    DeviceCodeErrorResponseType, RefreshToken, RequestTokenError, Scope,
    StandardDeviceAuthorizationResponse, TokenResponse, TokenUrl,
};
use tokio::time::sleep;
use url::{Url, form_urlencoded};

use super::{IssuerLogin, Login, LoginSource, TokenHost, unix_now};
use crate::error::{FetchError, LoginError};
use crate::https::IssuerClient;
use crate::issuer_url::IssuerUrl;

/// Scope that asks for a refresh token (OpenID Connect Core 1.0, section 11).
const OFFLINE_ACCESS: &str = "offline_access";
/// Maximum length of words of an issuer that are shown, in bytes.
const MAX_SHOWN_BYTES: usize = 300;

/// A login that is to be made.
#[derive(Debug, Clone)]
pub struct LoginRequest {
    /// The issuer.
    pub issuer: IssuerUrl,
    /// Name of this program at the issuer.
    pub client_id: String,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// Audience to ask for.
    pub audience: Option<String>,
    /// Hosts that receive the token. If there are none, those that its audience names.
    pub hosts: Vec<TokenHost>,
}

/// A login that waits for its user.
pub struct PendingLogin {
    request: LoginRequest,
    client: IssuerClient,
    token_endpoint: Url,
    details: StandardDeviceAuthorizationResponse,
}

impl LoginRequest {
    /// Asks the issuer for a code.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn begin(mut self) -> Result<PendingLogin, LoginError> {
        let client = IssuerClient::new(&self.issuer)?;
        let metadata = client.metadata().await?;
        let (Some(device), Some(token_endpoint)) = (
            metadata.device_authorization_endpoint,
            metadata.token_endpoint,
        ) else {
            return Err(LoginError::NoDeviceCodes {
                issuer: self.issuer.to_string(),
            });
        };
        let offers_renewal = metadata
            .scopes_supported
            .iter()
            .any(|scope| scope == OFFLINE_ACCESS);
        if offers_renewal && !self.scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
            self.scopes.push(OFFLINE_ACCESS.to_owned());
        }
        let oauth = BasicClient::new(ClientId::new(self.client_id.clone()))
            .set_auth_type(AuthType::RequestBody)
            .set_device_authorization_url(DeviceAuthorizationUrl::from_url(device));
        let mut question = oauth
            .exchange_device_code()
            .add_scopes(self.scopes.iter().cloned().map(Scope::new));
        for (name, value) in audience_parameters(self.audience.as_deref()) {
            question = question.add_extra_param(name, value);
        }
        let details = question
            .request_async(&client)
            .await
            .map_err(|error| match error {
                RequestTokenError::ServerResponse(refusal) => LoginError::Refused {
                    issuer: self.issuer.to_string(),
                    detail: shown(&refusal.to_string()),
                },
                RequestTokenError::Request(error) => error.into(),
                RequestTokenError::Parse(..) | RequestTokenError::Other(_) => {
                    not_understood(&self.issuer).into()
                }
            })?;
        Ok(PendingLogin {
            request: self,
            client,
            token_endpoint,
            details,
        })
    }
}

impl PendingLogin {
    /// Returns the page on which the user confirms the code.
    #[must_use]
    pub fn page(&self) -> String {
        shown(self.details.verification_uri().as_str())
    }

    /// Returns the page with the code in it, if the issuer has one.
    #[must_use]
    pub fn page_with_code(&self) -> Option<String> {
        let page = self.details.verification_uri_complete()?;
        Some(shown(page.secret()))
    }

    /// Returns the code.
    #[must_use]
    pub fn code(&self) -> String {
        shown(self.details.user_code().secret())
    }

    /// Returns the time that the user has.
    #[must_use]
    pub fn time_limit(&self) -> Duration {
        self.details.expires_in()
    }

    /// Waits until the user has confirmed the code.
    ///
    /// # Errors
    /// [`LoginError::NotConfirmed`], among others.
    pub async fn wait(self) -> Result<Login, LoginError> {
        let issuer = self.request.issuer;
        let oauth = BasicClient::new(ClientId::new(self.request.client_id.clone()))
            .set_auth_type(AuthType::RequestBody)
            .set_token_uri(TokenUrl::from_url(self.token_endpoint.clone()));
        let mut question = oauth.exchange_device_access_token(&self.details);
        for (name, value) in audience_parameters(self.request.audience.as_deref()) {
            question = question.add_extra_param(name, value);
        }
        let answered = question.request_async(&self.client, sleep, None).await;
        let answer = answered.map_err(|error| confirmation_error(&issuer, error))?;
        let login = IssuerLogin {
            issuer: issuer.as_str().to_owned(),
            client_id: self.request.client_id,
            scope: self.request.scopes.join(" "),
            audience: self.request.audience,
            token_endpoint: self.token_endpoint,
            access_token: access_token(&issuer, &answer)?,
            obtained: unix_now(),
            expires: expiry(&answer),
            refresh_token: answer.refresh_token().cloned(),
            renewal_failed: None,
        };
        Ok(Login {
            hosts: self.request.hosts,
            source: LoginSource::Issuer(Box::new(login)),
        })
    }
}

/// Gets a new token for a login.
///
/// # Errors
/// [`LoginError::Ended`] if the issuer refuses, and others.
pub(crate) async fn refresh(login: &IssuerLogin) -> Result<IssuerLogin, LoginError> {
    let issuer = IssuerUrl::parse(&login.issuer)?;
    let ended = |detail: String| LoginError::Ended {
        issuer: issuer.to_string(),
        detail,
    };
    let Some(refresh_token) = &login.refresh_token else {
        return Err(ended("its token has expired, and cannot be renewed".into()));
    };
    let client = IssuerClient::new(&issuer)?;
    let oauth = BasicClient::new(ClientId::new(login.client_id.clone()))
        .set_auth_type(AuthType::RequestBody)
        .set_token_uri(TokenUrl::from_url(login.token_endpoint.clone()));
    let mut question = oauth.exchange_refresh_token(refresh_token);
    for (name, value) in audience_parameters(login.audience.as_deref()) {
        question = question.add_extra_param(name, value);
    }
    let answered = question.request_async(&client).await;
    let answer = answered.map_err(|error| match error {
        RequestTokenError::ServerResponse(refusal) => match refusal.error() {
            BasicErrorResponseType::InvalidGrant => ended(shown(&refusal.to_string())),
            _ => LoginError::Refused {
                issuer: issuer.to_string(),
                detail: shown(&refusal.to_string()),
            },
        },
        RequestTokenError::Request(error) => error.into(),
        RequestTokenError::Parse(..) | RequestTokenError::Other(_) => {
            not_understood(&issuer).into()
        }
    })?;
    let renewed: Option<RefreshToken> = answer.refresh_token().cloned();
    Ok(IssuerLogin {
        access_token: access_token(&issuer, &answer)?,
        obtained: unix_now(),
        expires: expiry(&answer),
        // An issuer that gives no other one accepts the same again.
        refresh_token: renewed.or_else(|| login.refresh_token.clone()),
        renewal_failed: None,
        ..login.clone()
    })
}

/// Tells the issuer that the tokens of a login are not used any more (RFC 7009).
///
/// # Errors
/// The issuer cannot be asked.
pub(crate) async fn revoke(login: &IssuerLogin) -> Result<(), LoginError> {
    let issuer = IssuerUrl::parse(&login.issuer)?;
    let client = IssuerClient::new(&issuer)?;
    let Some(endpoint) = client.metadata().await?.revocation_endpoint else {
        return Ok(());
    };
    let (kind, token) = match &login.refresh_token {
        Some(token) => ("refresh_token", token.secret().as_str()),
        None => ("access_token", login.access_token.secret()),
    };
    // `oauth2` refuses issuers of this machine here.
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("token", token)
        .append_pair("token_type_hint", kind)
        .append_pair("client_id", &login.client_id)
        .finish();
    client.post_form(&endpoint, form).await?;
    Ok(())
}

/// Returns the parameters that ask for a token for `audience`: that of the WLCG and many issuers,
/// and that of RFC 8707 if it is a URL.
fn audience_parameters(audience: Option<&str>) -> Vec<(&'static str, String)> {
    let Some(audience) = audience else {
        return Vec::new();
    };
    let mut parameters = vec![("audience", audience.to_owned())];
    if Url::parse(audience).is_ok_and(|url| url.has_host() && url.fragment().is_none()) {
        parameters.push(("resource", audience.to_owned()));
    }
    parameters
}

fn confirmation_error(
    issuer: &IssuerUrl,
    error: RequestTokenError<FetchError, DeviceCodeErrorResponse>,
) -> LoginError {
    match error {
        RequestTokenError::ServerResponse(refusal) => {
            let (issuer, detail) = (issuer.to_string(), shown(&refusal.to_string()));
            match refusal.error() {
                DeviceCodeErrorResponseType::AccessDenied
                | DeviceCodeErrorResponseType::ExpiredToken => {
                    LoginError::NotConfirmed { issuer, detail }
                }
                _ => LoginError::Refused { issuer, detail },
            }
        }
        RequestTokenError::Request(error) => error.into(),
        RequestTokenError::Parse(..) | RequestTokenError::Other(_) => not_understood(issuer).into(),
    }
}

/// Returns the access token of an answer.
fn access_token(
    issuer: &IssuerUrl,
    answer: &BasicTokenResponse,
) -> Result<BearerToken, FetchError> {
    BearerToken::new(answer.access_token().secret()).map_err(|error| FetchError::Answer {
        url: issuer.to_string(),
        detail: error.to_string(),
    })
}

/// Returns the time at which the token of an answer expires.
fn expiry(answer: &BasicTokenResponse) -> Option<u64> {
    Some(unix_now().saturating_add(answer.expires_in()?.as_secs()))
}

fn not_understood(issuer: &IssuerUrl) -> FetchError {
    FetchError::Answer {
        url: issuer.to_string(),
        detail: "its answer about tokens is not that of OAuth 2.0".into(),
    }
}

fn shown(text: &str) -> String {
    printable_within(text.as_bytes(), MAX_SHOWN_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audience_is_asked_for_in_both_ways() {
        let names = |audience| -> Vec<&str> {
            let parameters = audience_parameters(audience);
            parameters.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(None), [""; 0]);
        assert_eq!(names(Some("dtn.example")), ["audience"]);
        assert_eq!(names(Some("urn:dtn")), ["audience"]);
        assert_eq!(
            names(Some("https://dtn.example/")),
            ["audience", "resource"]
        );
    }
}
