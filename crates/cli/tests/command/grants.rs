//! Grants of a server while it runs.

use crate::stage::*;

#[test]
fn invalid_grants_leave_those_in_force_at_reload() {
    let stage = Stage::new();
    let other = stage.key("other");
    let file = stage.path("grants.toml");
    std::fs::write(&file, "").unwrap();
    let server = stage.serve(&["--grants", file.to_str().unwrap()]);
    stage.noise("here/f", 1000);
    let mut number = 0;
    let mut code = |who: &str, more: &[&str]| {
        number += 1;
        let there = format!("lh://{}/{who}{number}", server.address);
        let copy = stage
            .longhaul(who)
            .args(["cp", "--host-key", &server.key, "here/f", &there])
            .args(more)
            .output();
        copy.unwrap().status.code()
    };
    assert_eq!(code("other", &[]), Some(4));
    std::fs::write(
        &file,
        format!("[[grant]]\nkey = \"{other}\"\ncreate = [\"/\"]\n"),
    )
    .unwrap();
    server.hang_up();
    until("the new grant is in force", || {
        code("other", &[]) == Some(0)
    });
    assert_eq!(
        code("other", &["--overwrite"]),
        Some(4),
        "it may create and not replace"
    );
    assert_eq!(
        code("me", &["--overwrite"]),
        Some(0),
        "what the command line grants stays"
    );
    // An invalid file leaves the grants in force.
    std::fs::write(&file, "[[grant]]\nkey = 5\n").unwrap();
    server.hang_up();
    for _ in 0..3 {
        assert_eq!((code("other", &[]), code("me", &[])), (Some(0), Some(0)));
    }
    std::fs::write(&file, "").unwrap();
    server.hang_up();
    until("the grant is withdrawn", || code("other", &[]) == Some(4));
    assert_eq!(code("me", &[]), Some(0));
}
