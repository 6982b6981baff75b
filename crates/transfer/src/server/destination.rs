//! Where a copy at the server writes: what the grants allow, and what the client asked for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Server;
use super::copy::{ServerCopy, access_of};
use crate::error::Error;
use crate::grants::Access;
use crate::store::{AttributeSettings, CopyDestination, WriteOptions};
use crate::wire::CopyRequest;
use crate::workers::blocking;

impl Server {
    /// Opens the destination of a push, or of what this server fetches from another one.
    pub(super) async fn open_destination(
        self: &Arc<Self>,
        copy: &Arc<ServerCopy>,
    ) -> Result<CopyDestination, Error> {
        let CopyRequest::Push {
            destination,
            into,
            overwrite,
            fsync,
            names,
        } = &copy.hello.request
        else {
            return Err(Error::Refused("it names no destination".into()));
        };
        let options = WriteOptions {
            overwrite: *overwrite,
            fsync: *fsync,
            resume: copy.hello.resume,
            in_place: copy.hello.in_place,
        };
        let credential = copy.credential.borrow().clone();
        let grants = self.grants_with(&copy.principal, credential.as_deref());
        let access = access_of(*overwrite);
        let within = grants
            .widest_directory(&copy.principal, access, destination)
            .cloned();
        // The grant existed when it was checked before, and was withdrawn since.
        let within = within.ok_or(Error::Unauthorised("the grant was withdrawn".into()))?;
        let may_compare = grants.allows(&copy.principal, Access::Read, destination);
        // LH-COPY-56.
        let existing = copy.hello.existing;
        if !existing.is_default() && !may_compare {
            return Err(Error::Unauthorised(
                "a copy that depends on what exists needs a grant to read it: ask the server's \
                 operator"
                    .into(),
            ));
        }
        let attributes = AttributeSettings {
            keep: copy.hello.keep,
            changes: self.metadata_changes(),
            // LH-COPY-69.
            is_privileged: self.sets_owners.load(Ordering::Relaxed),
            corrects_existing: copy.hello.keep.has_attributes()
                && grants.allows(&copy.principal, Access::Write, destination),
        };
        let (target, into, names) = (destination.clone(), *into, names.clone());
        let (token, placement) = (copy.hello.token, copy.hello.placement);
        let server = self.clone();
        let opened = blocking(move || {
            let root = server.current_root()?;
            let base = root.clone();
            let destination = CopyDestination::beneath(base, target, into, names, options, token)?;
            // LH-COPY-53.
            let destination = destination
                .placed(placement)
                .with_existing(existing)
                .with_attributes(attributes)
                .confined_to(within, may_compare);
            let present = destination.has_something();
            Ok::<_, Error>((destination, present, root))
        });
        let (destination, present, root) = opened.await??;
        let server = Arc::downgrade(self);
        let is_in_place = move || {
            let server = server.upgrade();
            server.is_none_or(|server| server.still_serves(&root))
        };
        let destination = destination
            .with_quota(self.quota().cloned())
            .at_member(self.member.get().copied())
            .with_rivals(self.rivals_of(copy))
            .with_end_check(Arc::new(is_in_place));
        copy.present.store(present, Ordering::Relaxed);
        let _ = copy.placement.set(destination.placement());
        Ok(destination)
    }
}
