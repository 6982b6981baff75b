//! Servers that trust issuers of tokens, and clients that log in there. The issuers are programs of
//! other projects.

mod issuers;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::stage::{Running, Service, Stage};
use issuers::{AUDIENCE, Issuer, unix_now};

const READ: &str = "storage.read:/";
/// Size of the file of a long copy, in bytes.
const LARGE_BYTES: usize = 128 << 20;

/// A server that trusts an issuer and no key.
struct World {
    stage: Stage,
    server: Service,
}

impl World {
    fn new(issuer: &Issuer) -> Self {
        Self::with(issuer, "")
    }

    /// `more` is added to the section of the issuer.
    fn with(issuer: &Issuer, more: &str) -> Self {
        let stage = Stage::new();
        trust(&stage, issuer, more);
        fs::create_dir(stage.path("root/in")).unwrap();
        stage.noise("root/f", 5000);
        stage.noise("here/f", 7000);
        let server = serve(&stage);
        Self { stage, server }
    }

    /// Returns the command of a user, without tokens from the environment of the tests.
    fn longhaul(&self) -> Command {
        let mut command = self.stage.longhaul("me");
        command
            .env_remove("BEARER_TOKEN")
            .env_remove("BEARER_TOKEN_FILE")
            .env("XDG_RUNTIME_DIR", self.stage.path("runtime"));
        command
    }

    /// Sends this token to the server from now on.
    fn use_token(&self, token: &str) {
        let file = self.stage.path("token");
        fs::write(&file, token).unwrap();
        let login = self
            .longhaul()
            .args(["login", "--for", "127.0.0.1", "--from"])
            .arg(file)
            .output();
        succeeded(&login.unwrap());
    }

    fn at(&self, path: &str) -> String {
        format!("lh://{}/{path}", self.server.address)
    }

    fn cp(&self, from: &str, to: &str) -> Output {
        let mut command = self.longhaul();
        command.args([
            "cp",
            "--overwrite",
            "--host-key",
            &self.server.key,
            from,
            to,
        ]);
        command.output().unwrap()
    }

    fn fetch(&self) -> Output {
        self.cp(&self.at("f"), "here/fetched")
    }

    fn store(&self, path: &str) -> Output {
        self.cp("here/f", &self.at(path))
    }

    /// Starts a copy into `in` that takes minutes, as its depot is slow, and waits until data is in
    /// place. Fails with all that it says if it ends before that.
    fn start_long_copy(&self, depot: &Service) -> Result<Running, String> {
        let mut command = self.longhaul();
        command
            .args(["cp", "--json", "--host-key", &self.server.key])
            .args(["--route", &depot.address, "here/large"])
            .arg(self.at("in/large"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut copy = Running::new(command);
        let flows =
            |event: &Value| event["event"] == "progress" && event["bytes"].as_u64() > Some(0);
        copy.until(|event| event["event"] == "report" || flows(event));
        let last = copy.events.pop().unwrap();
        if flows(&last) {
            return Ok(copy);
        }
        let ended = copy.child.wait_with_output().unwrap();
        Err(format!("{last} {}", errors(&ended)))
    }

    /// Starts the depot of long copies.
    fn slow_depot(&self) -> Service {
        self.stage.noise("here/large", LARGE_BYTES);
        self.stage.depot("slow", Some("10 Mbit/s"))
    }
}

fn trust(stage: &Stage, issuer: &Issuer, more: &str) {
    let text = format!(
        "[[issuer]]\nurl = \"{}\"\naudience = \"{AUDIENCE}\"\n{more}\n",
        issuer.url
    );
    fs::write(stage.path("issuers.toml"), text).unwrap();
}

fn serve(stage: &Stage) -> Service {
    let mut command = stage.longhaul("server");
    command
        .args(["serve", "--root", "root", "--listen", "127.0.0.1:0"])
        .args(["--issuers", "issuers.toml"]);
    stage.service(command, "address")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn succeeded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
}

/// Asserts that a command was refused because of its rights, in these words.
fn refused(output: &Output, words: &str) {
    let errors = errors(output);
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert!(errors.contains(words), "{words:?} in {errors}");
}

#[test]
fn token_gives_the_rights_of_its_scopes_and_no_other() {
    let Some(mut issuer) = Issuer::oidc_provider(600) else {
        return;
    };
    let world = World::new(&issuer);
    refused(&world.fetch(), "ask its operator");
    world.use_token(&issuer.token(READ));
    succeeded(&world.fetch());
    assert_eq!(
        fs::read(world.stage.path("here/fetched")).unwrap(),
        fs::read(world.stage.path("root/f")).unwrap()
    );
    refused(&world.store("in/f"), "neither its scopes");
    world.use_token(&issuer.token("storage.modify:/in"));
    succeeded(&world.store("in/f"));
    refused(&world.store("f"), "neither its scopes");
    refused(&world.fetch(), "neither its scopes");
    let listed = |world: &World| {
        let mut command = world.longhaul();
        command.args(["ls", "--host-key", &world.server.key, &world.at("")]);
        command.output().unwrap()
    };
    assert_eq!(listed(&world).status.code(), Some(4));
    world.use_token(&issuer.token(READ));
    let listing = listed(&world);
    succeeded(&listing);
    assert!(String::from_utf8_lossy(&listing.stdout).contains('f'));
}

#[test]
fn invalid_token_is_refused_with_the_reason() {
    let Some(mut issuer) = Issuer::oidc_provider(600) else {
        return;
    };
    let world = World::with(&issuer, "require_groups = [\"/exp\"]\n");
    let member = json!({ "wlcg.groups": ["/exp"] });
    let with = |name: &str, value: Value| {
        let mut claims = member.clone();
        claims[name] = value;
        claims
    };
    let other_audience = with("aud", json!("https://other.example"));
    for (claims, scope, words) in [
        (with("exp", json!(unix_now() - 3600)), READ, "it expired 36"),
        (with("nbf", json!(unix_now() + 3600)), READ, "not valid yet"),
        (
            other_audience,
            READ,
            "its audience is \"https://other.example\"",
        ),
        (
            member.clone(),
            "openid",
            "none of its scopes is about files",
        ),
        (
            member.clone(),
            "storage.read",
            "none of its scopes is about files",
        ),
        (json!({}), READ, "none of the groups"),
        (
            with("iss", json!("https://other.example")),
            READ,
            "does not trust the issuer",
        ),
    ] {
        world.use_token(&issuer.token_with(scope, &claims));
        let output = world.fetch();
        refused(&output, words);
        assert!(
            errors(&output).contains("longhaul login"),
            "{}",
            errors(&output)
        );
    }
    // An opaque token, and a changed one.
    world.use_token("opaque");
    refused(&world.fetch(), "no JSON Web Token");
    let token = issuer.token_with(READ, &member);
    let parts: Vec<&str> = token.split('.').collect();
    let forged = issuer.token_with("storage.modify:/", &member);
    let payload = forged.split('.').nth(1).unwrap();
    world.use_token(&format!("{}.{payload}.{}", parts[0], parts[2]));
    refused(&world.fetch(), "its signature is not that of its issuer");
    world.use_token(&token);
    succeeded(&world.fetch());
}

#[test]
fn device_login_gets_a_token_and_keeps_it_secret() {
    // Tokens that are renewed at once.
    let Some(mut issuer) = Issuer::oidc_provider(1) else {
        return;
    };
    let world = World::new(&issuer);
    let login = |issuer: &mut Issuer, verdict: &str| {
        let mut command = world.longhaul();
        command
            .args([
                "login",
                &issuer.url,
                "--audience",
                AUDIENCE,
                "--for",
                "127.0.0.1",
            ])
            .args(["--scope", READ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let code = loop {
            let line = lines.next().expect(&said).unwrap();
            said.push_str(&line);
            if let Some((_, code)) = line.split_once("confirm the code ") {
                break code.to_owned();
            }
        };
        issuer.command(&format!("{verdict} {code}"));
        for line in lines.map_while(Result::ok) {
            said.push_str(&line);
        }
        (child.wait().unwrap().code(), said)
    };
    let (code, said) = login(&mut issuer, "deny");
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("was not confirmed"), "{said}");
    let (code, said) = login(&mut issuer, "approve");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("127.0.0.1"), "{said}");
    let logins = fs::read_dir(world.stage.path("me/logins")).unwrap();
    let files: Vec<_> = logins.map(|entry| entry.unwrap().path()).collect();
    let file = files
        .iter()
        .find(|file| file.extension().is_some())
        .unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let stored = || -> Value { serde_json::from_slice(&fs::read(file).unwrap()).unwrap() };
    let token = stored()["source"]["issuer"]["access_token"].clone();
    let secret = token.as_str().unwrap();
    assert!(!said.contains(secret));
    let mut list = world.longhaul();
    let list = list.args(["login", "--list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(
        listed.contains(&issuer.url) && !listed.contains(secret),
        "{listed}"
    );
    // It is renewed without the user when half of its second has passed.
    while stored()["source"]["issuer"]["access_token"] == token {
        succeeded(&world.fetch());
    }
    succeeded(&world.fetch());
    let refresh_token = stored()["source"]["issuer"]["refresh_token"].clone();
    let knows = format!("knows {}", refresh_token.as_str().unwrap());
    assert_eq!(issuer.command(&knows), "true");
    let mut logout = world.longhaul();
    let logout = logout.args(["logout", &issuer.url]).output().unwrap();
    succeeded(&logout);
    assert!(!file.exists());
    assert_eq!(issuer.command(&knows), "false");
    refused(&world.fetch(), "ask its operator");
}

#[test]
fn rotated_keys_are_fetched_and_old_tokens_refused() {
    let Some(mut issuer) = Issuer::oidc_provider(600) else {
        return;
    };
    let world = World::new(&issuer);
    let old = issuer.token(READ);
    world.use_token(&old);
    succeeded(&world.fetch());
    issuer.command("rotate");
    world.use_token(&issuer.token(READ));
    succeeded(&world.fetch());
    world.use_token(&old);
    refused(&world.fetch(), "does not have the key that signed it");
}

#[test]
fn outage_of_the_issuer_stops_only_servers_without_its_keys() {
    let Some(mut issuer) = Issuer::oidc_provider(600) else {
        return;
    };
    let mut world = World::new(&issuer);
    world.use_token(&issuer.token(READ));
    succeeded(&world.fetch());
    issuer.command("down");
    succeeded(&world.fetch());
    world.server = serve(&world.stage);
    let output = world.fetch();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(
        errors(&output).contains("try again later"),
        "{}",
        errors(&output)
    );
    issuer.command("up");
    succeeded(&world.fetch());
}

#[test]
fn running_copy_ends_when_its_token_expires() {
    let Some(mut issuer) = Issuer::oidc_provider(600) else {
        return;
    };
    let world = World::with(&issuer, "leeway_seconds = 0\n");
    let depot = world.slow_depot();
    // A slow machine needs longer until data flows.
    let mut seconds = 8;
    let copy = loop {
        let expires = json!({ "exp": unix_now() + seconds });
        world.use_token(&issuer.token_with("storage.create:/in", &expires));
        match world.start_long_copy(&depot) {
            Ok(copy) => break copy,
            Err(said) => assert!(said.contains("expired"), "{said}"),
        }
        seconds *= 2;
    };
    let (report, code, errors) = copy.report();
    assert_eq!(code, Some(4), "{report} {errors}");
    let said = format!("{report} {errors}");
    // Whoever opens a stream next is told otherwise.
    let words = ["has expired", "it expired"];
    assert!(words.iter().any(|words| said.contains(words)), "{said}");
    assert!(said.contains("longhaul login"), "{said}");
    assert!(!world.stage.path("root/in/large").exists());
}

#[test]
fn running_copy_ends_when_its_subject_is_denied() {
    let Some(mut issuer) = Issuer::oidc_provider(600) else {
        return;
    };
    let world = World::new(&issuer);
    world.use_token(&issuer.token("storage.create:/in"));
    let depot = world.slow_depot();
    let copy = world.start_long_copy(&depot).unwrap();
    trust(&world.stage, &issuer, "deny_subjects = [\"alice\"]\n");
    world.server.hang_up();
    let (report, code, errors) = copy.report();
    assert_eq!(code, Some(4), "{report} {errors}");
    let said = format!("{report} {errors}");
    let words = ["is not accepted any more", "refuses its subject"];
    assert!(words.iter().any(|words| said.contains(words)), "{said}");
}

#[test]
fn token_goes_only_to_hosts_that_it_is_for() {
    let Some(mut issuer) = Issuer::oidc_provider(600) else {
        return;
    };
    let world = World::new(&issuer);
    let fetch = |token: &str| {
        let mut command = world.longhaul();
        command
            .args(["cp", "--overwrite", "--host-key", &world.server.key])
            .args([&world.at("f"), "here/fetched"])
            .env("BEARER_TOKEN", token);
        command.output().unwrap()
    };
    let elsewhere = fetch(&issuer.token(READ));
    refused(&elsewhere, "ask its operator");
    assert!(!errors(&elsewhere).contains("did not use your token"));
    let both = json!({ "aud": [AUDIENCE, "http://127.0.0.1/"] });
    succeeded(&fetch(&issuer.token_with(READ, &both)));
}

#[test]
fn server_without_issuers_is_said_not_to_use_the_token() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    stage.noise("root/f", 100);
    fs::write(stage.path("token"), "some.opaque.token").unwrap();
    let user = |arguments: &[&str]| stage.longhaul("user").args(arguments).output().unwrap();
    succeeded(&user(&["login", "--from", "token", "--for", "127.0.0.1"]));
    let from = format!("lh://{}/f", server.address);
    let copy = user(&["cp", "--host-key", &server.key, &from, "here/f"]);
    refused(&copy, "did not use your token");
    assert!(!errors(&copy).contains("some.opaque.token"));
    // A key that has rights needs no token, and a useless one does no harm.
    let me = |arguments: &[&str]| stage.longhaul("me").args(arguments).output().unwrap();
    succeeded(&me(&["login", "--from", "token", "--for", "127.0.0.1"]));
    succeeded(&me(&["cp", "--host-key", &server.key, &from, "here/f"]));
}

#[test]
fn scitokens_agrees_on_what_its_tokens_permit() {
    let Some(mut issuer) = Issuer::scitokens() else {
        return;
    };
    let world = World::new(&issuer);
    for directory in ["root/data", "root/data/in", "root/data2"] {
        fs::create_dir(world.stage.path(directory)).unwrap();
    }
    for file in ["root/data/f", "root/data/in/f", "root/data2/f"] {
        world.stage.noise(file, 100);
    }
    let token = issuer.token("read:/data write:/data/in");
    world.use_token(&token);
    let (mut permitted, mut denied) = (0, 0);
    for path in ["f", "data/f", "data/in/f", "data2/f"] {
        for verb in ["read", "write"] {
            let allowed = issuer.command(&format!("allows {token} {verb} /{path}"));
            let output = match verb {
                "read" => world.cp(&world.at(path), "here/fetched"),
                _ => world.store(path),
            };
            match allowed.as_str() {
                "True" => {
                    permitted += 1;
                    succeeded(&output);
                }
                _ => {
                    denied += 1;
                    refused(&output, "neither its scopes");
                }
            }
        }
    }
    assert_eq!((permitted, denied), (3, 5));
}
