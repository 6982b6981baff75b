//! Output of long-running commands on standard error.

use crate::stage::Stage;

#[test]
fn logs_in_a_file_hold_no_escape_codes() {
    let stage = Stage::new();
    let log = stage.path("log");
    let server = stage.serve_logging_to(&log);
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let copied = stage.cp(&server, &["here/f", &format!("lh://{}/f", server.address)]);
    assert!(copied.status.success());
    assert_eq!(server.terminate(), Some(0));
    let written = std::fs::read(&log).unwrap();
    let text = String::from_utf8_lossy(&written);
    assert!(text.contains("INFO") && text.contains("session"), "{text}");
    assert!(!written.contains(&0x1b), "{text:?}");
}
