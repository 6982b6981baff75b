use longhaul_copy_api::CopyOptions;

use super::*;

fn request(sources: &[&str], destination: &str) -> JobRequest {
    JobRequest {
        sources: sources.iter().map(|&source| source.to_owned()).collect(),
        destination: destination.into(),
        options: CopyOptions::default(),
        label: None,
        priority: 0,
        not_before: None,
        on_end: None,
        split: None,
        on_end_url: None,
    }
}

#[test]
fn place_of_a_job_is_its_far_end() {
    for (sources, destination, place) in [
        (["/a"], "ana@dtn:/b", "ana@dtn"),
        (["lh://dtn:7511/a"], "/b", "dtn:7511"),
        (["one:/a"], "two:b", "two"),
        (["ana@[2001:db8::1]:a"], "/b", "ana@[2001:db8::1]"),
        (["/a:b"], "/c", "this machine"),
    ] {
        let request = request(&sources, destination);
        assert_eq!(request.check(), Ok(()), "{destination}");
        assert_eq!(request.place(), place);
    }
}

#[test]
fn invalid_job_requests_are_refused() {
    let good = || request(&["/a"], "/b");
    let reported = |request: JobRequest| request.check().unwrap_err();
    assert_eq!(reported(request(&[], "/b")), InvalidRequest::NoSources);
    assert_eq!(
        reported(request(&["a"], "/b")),
        InvalidRequest::Relative("a".into())
    );
    assert_eq!(
        reported(request(&["./a:b"], "/b")),
        InvalidRequest::Relative("./a:b".into())
    );
    assert_eq!(
        reported(request(&["/a\0"], "/b")),
        InvalidRequest::Text("sources")
    );
    assert_eq!(
        reported(request(&["/a"], "")),
        InvalidRequest::Text("destination")
    );
    assert_eq!(
        reported(request(&["/a"; 1001], "/b")),
        InvalidRequest::TooMany("sources".into())
    );
    let bad = JobRequest {
        priority: i64::MIN,
        ..good()
    };
    assert_eq!(reported(bad), InvalidRequest::Priority);
    let bad = JobRequest {
        not_before: Some("tomorrow".into()),
        ..good()
    };
    assert_eq!(reported(bad), InvalidRequest::NotBefore("tomorrow".into()));
    let bad = JobRequest {
        on_end: Some(Vec::new()),
        ..good()
    };
    assert_eq!(reported(bad), InvalidRequest::NoProgram);
    let bad = JobRequest {
        on_end_url: Some("file:///etc/passwd".into()),
        ..good()
    };
    assert_eq!(reported(bad), InvalidRequest::Url);
}

#[test]
fn split_job_needs_a_directory_and_an_agent() {
    let split = |sources: &[&str], destination: &str, parts| JobRequest {
        split: Some(parts),
        ..request(sources, destination)
    };
    for (sources, destination) in [
        (&["/a"][..], "dtn:/b/"),
        (&["/a"], "dtn:"),
        (&["lh://dtn/a"], "/b/"),
        (&["/a", "/b"], "/c"),
    ] {
        assert_eq!(split(sources, destination, 8).check(), Ok(()));
    }
    for parts in [0, 1, 1001] {
        assert_eq!(
            split(&["/a"], "/b/", parts).check(),
            Err(InvalidRequest::Parts)
        );
    }
    let into = InvalidRequest::SplitInto("dtn:/b".into());
    assert_eq!(split(&["/a"], "dtn:/b", 8).check(), Err(into));
    assert_eq!(
        split(&["one:/a"], "two:/b/", 8).check(),
        Err(InvalidRequest::SplitBetween)
    );
    // Jobs stored by a release that did not know parts read the same.
    let text = serde_json::to_string(&request(&["/a"], "/b")).unwrap();
    assert!(!text.contains("split"));
}

#[test]
fn progress_of_parts_is_summed() {
    let part = |bytes, walk_complete| Progress {
        seconds: bytes as f64,
        bytes,
        bytes_found: 10,
        walk_complete,
        files: 1,
        entries_found: 2,
        bps: 4.0,
        routes_bps: [("direct".to_owned(), 4.0)].into(),
    };
    let sum = Progress::sum(&[part(3, true), part(5, true)], 2);
    assert_eq!(
        (sum.seconds, sum.bytes, sum.bytes_found, sum.files),
        (5.0, 8, 20, 2)
    );
    assert_eq!(
        (sum.bps, sum.routes_bps["direct"], sum.entries_found),
        (8.0, 8.0, 4)
    );
    assert!(sum.walk_complete);
    // The total is unknown while a part has not begun.
    assert!(!Progress::sum(&[part(3, true), part(5, true)], 3).walk_complete);
    assert!(!Progress::sum(&[part(3, true), part(5, false)], 2).walk_complete);
}
