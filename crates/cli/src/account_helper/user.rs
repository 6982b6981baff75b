//! Users of this machine.

/// A user, with all groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LocalUser {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// Looks a user up, as initgroups(3) does.
pub(super) fn find(name: &str) -> Option<LocalUser> {
    let user = uzers::get_user_by_name(name)?;
    let gid = user.primary_group_id();
    let groups = uzers::get_user_groups(name, gid).unwrap_or_default();
    let mut groups: Vec<u32> = groups.iter().map(uzers::Group::gid).collect();
    if !groups.contains(&gid) {
        groups.push(gid);
    }
    Some(LocalUser {
        uid: user.uid(),
        gid,
        groups,
    })
}
