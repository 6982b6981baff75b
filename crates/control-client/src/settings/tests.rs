//! Tests of valid and of malformed settings.

use proptest::prelude::*;

use super::*;

fn key() -> PublicKey {
    PublicKey::from_bytes([7; 32])
}

#[test]
fn written_settings_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(FILE);
    assert_eq!(Settings::load(&file).unwrap(), None);
    for site in [
        Site {
            url: "https://control.example:7513".parse().unwrap(),
            known: Some(KnownBy::Key(key())),
        },
        Site {
            url: "https://[2001:db8::1]:1".parse().unwrap(),
            known: Some(KnownBy::Authority("/etc/a \"b\".pem".into())),
        },
        Site {
            url: "unix:/run/control".parse().unwrap(),
            known: None,
        },
    ] {
        let other = Site {
            url: "https://control2.example:7513".parse().unwrap(),
            known: Some(KnownBy::Key(key())),
        };
        for others in [vec![], vec![other.clone()], vec![site.clone(), other]] {
            let settings = Settings {
                first: site.clone(),
                others,
            };
            settings.save(&file).unwrap();
            assert_eq!(Settings::load(&file).unwrap(), Some(settings));
        }
    }
}

#[test]
fn incomplete_settings_are_refused() {
    for text in [
        "",
        "url = 3",
        "url = \"https://h\"",
        "url = \"http://h\"\nkey = \"lhk1:x\"",
        "url = \"https://h\"\nkey = \"lhk1:x\"",
        "url = \"unix:/s\"\nauthority = \"/a\"",
        "url = \"https://h\"\nauthority = \"/a\"\nkey = \"lhk1:x\"",
        "url = \"https://h\"\nauthority = \"/a\"\nwhat = 1",
        "url = \"unix:/s\"\n[[other]]\nurl = \"https://h\"",
        "url = \"unix:/s\"\n[[other]]\nurl = \"unix:/t\"\n[[other.other]]\nurl = \"unix:/u\"",
    ] {
        assert!(Settings::parse(text).is_err(), "{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(FILE);
    std::fs::write(&file, "#".repeat(MAX_BYTES as usize + 1)).unwrap();
    let error = Settings::load(&file).unwrap_err().to_string();
    assert!(
        error.contains("too long") && !error.contains('\n'),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_text_parses_or_fails_in_one_line(text in ".{0,200}") {
        if let Err(problem) = Settings::parse(&text) {
            let error = SettingsError::Malformed {
                file: "f".into(),
                problem: printable(problem.as_bytes())
            };
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}
