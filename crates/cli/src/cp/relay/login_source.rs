//! A host from which a copy reads by ssh login.

use anyhow::{Result, anyhow, bail};
use longhaul_remote::{FarSide, Login, Start};
use longhaul_sftp::SftpPath;

use crate::cp::over_sftp::lacks_longhaul;
use crate::cp::over_ssh::{FORCED_SFTP_SILENCE, require_stuck};
use crate::cp::{Cp, NO_SOURCE};
use crate::overlap;
use crate::place::{Location, Place, PlaceOptions};
use crate::target::Target;
use crate::watch::CopyWatch;

impl Cp {
    /// Opens the place of sources at an ssh host, and returns their paths there. A host without a
    /// usable longhaul is read by SFTP.
    ///
    /// # Errors
    /// The host cannot be reached, or offers neither.
    pub(super) async fn open_login(
        &self,
        sources: &[Login],
        destination: &Target,
        options: &PlaceOptions,
        watch: &CopyWatch,
    ) -> Result<(Location, Place, Vec<Vec<u8>>)> {
        let Some(first) = sources.first() else {
            bail!(NO_SOURCE)
        };
        let host = first.host.as_str();
        let by_longhaul = |far| {
            let location = Location::Login(host.to_owned());
            let paths = sources.iter().map(|source| source.path.clone());
            (location, Place::Login(Box::new(far)), paths.collect())
        };
        let quick = Start {
            max_silence: Some(FORCED_SFTP_SILENCE),
            ..self.start()
        };
        let error = match FarSide::start(&quick, host).await {
            Ok(far) => return Ok(by_longhaul(far)),
            Err(error) => anyhow!(error),
        };
        let Some(reason) = lacks_longhaul(&error) else {
            return Err(error);
        };
        let by_sftp: Vec<SftpPath> = sources.iter().map(SftpPath::from).collect();
        let location = Location::Sftp(SftpPath::from(first).root());
        match Place::open(&location, options).await {
            Ok(place) => {
                watch.notice(&format!(
                    "{host}: {reason}: reading by sftp, which cannot verify what is read"
                ));
                if let Target::Sftp(destination) = destination {
                    overlap::refuse_into_itself(&by_sftp, destination, options).await?;
                }
                let paths = by_sftp.iter().map(|path| path.path().to_vec());
                Ok((location, place, paths.collect()))
            }
            Err(by_sftp) => {
                require_stuck(error, by_sftp)?;
                let far = FarSide::start(&self.start(), host).await?;
                Ok(by_longhaul(far))
            }
        }
    }
}
