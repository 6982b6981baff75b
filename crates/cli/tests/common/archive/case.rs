//! Generates random trees, and changes of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::common::mirror::rule;

/// Bytes of a region of a sparse file. Holes of files that travel whole are not kept.
pub const REGION_BYTES: usize = 128 << 10;
/// Number of regions of a sparse file.
pub const REGIONS: usize = 5;

/// An entry of a tree; `parent` chooses among the directories before it.
#[derive(Debug, Clone)]
pub struct Entry {
    pub parent: Index,
    pub name: Vec<u8>,
    pub content: Content,
    pub properties: Properties,
}

#[derive(Debug, Clone)]
pub enum Content {
    Directory,
    File(FileContent),
    Link(Vec<u8>),
    /// Another name of a file.
    HardLink(Index),
    Fifo,
}

#[derive(Debug, Clone)]
pub struct FileContent {
    pub data: Data,
    pub seed: u64,
}

#[derive(Debug, Clone)]
pub enum Data {
    Bytes(usize),
    /// Regions with data, as bits. The others are holes.
    Regions(u8),
}

#[derive(Debug, Clone)]
pub struct Properties {
    pub mode: u32,
    pub special_bits: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, i64),
    pub attribute: Option<Vec<u8>>,
    /// Permissions of another user.
    pub acl: Option<u16>,
    pub has_default_acl: bool,
}

/// A change of the source between two mirrors.
#[derive(Debug, Clone)]
pub enum Change {
    Add(Entry),
    Remove(Index),
    Rename(Index, Index, Vec<u8>),
    Rewrite {
        file: Index,
        content: FileContent,
        keeps_inode: bool,
    },
    Set {
        path: Index,
        properties: Properties,
        keeps_time: bool,
    },
}

#[derive(Debug, Clone)]
pub struct Case {
    pub entries: Vec<Entry>,
    pub changes: Vec<Change>,
    pub rules: Vec<String>,
}

/// Returns a name of bytes that patterns match, or of any bytes.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![
        6 => "[a-d](\\.o)?".prop_map(String::into_bytes),
        2 => vec(any::<u8>(), 1..6),
        1 => vec(select(&b"*?[]\\ \n'\"-#;~\xc3\xa9"[..]), 1..5),
        1 => vec(any::<u8>(), 255),
    ];
    bytes.prop_map(|bytes| match &bytes[..] {
        b"." | b".." => b"dots".to_vec(),
        _ => {
            let plain = |byte: u8| if matches!(byte, 0 | b'/') { b'x' } else { byte };
            bytes.into_iter().map(plain).collect()
        }
    })
}

fn properties() -> impl Strategy<Value = Properties> {
    let mode = select(vec![0o600, 0o644, 0o640, 0o755, 0o700, 0o664]);
    let special_bits = prop_oneof![5 => Just(0), 1 => select(vec![0o4000, 0o2000, 0o1000])];
    let owner = (select(vec![0, 1001, 54_321]), select(vec![0, 1001, 1002]));
    let mtime = (-1_000_000i64..1_500_000_000, 0i64..1_000_000_000);
    let attribute = prop_oneof![3 => Just(None), 1 => vec(any::<u8>(), 0..40).prop_map(Some)];
    let acl = prop_oneof![3 => Just(None), 1 => (0u16..8).prop_map(Some)];
    let values = (
        mode,
        special_bits,
        owner,
        mtime,
        attribute,
        acl,
        any::<bool>(),
    );
    values.prop_map(
        |(mode, special_bits, owner, mtime, attribute, acl, has_default_acl)| Properties {
            mode,
            special_bits,
            owner,
            mtime,
            attribute,
            acl,
            has_default_acl: has_default_acl && acl.is_some(),
        },
    )
}

fn file_content() -> impl Strategy<Value = FileContent> {
    let data = prop_oneof![
        6 => (0usize..3000).prop_map(Data::Bytes),
        1 => (262_144usize..400_000).prop_map(Data::Bytes),
        1 => (0u8..1 << REGIONS).prop_map(Data::Regions),
    ];
    (data, any::<u64>()).prop_map(|(data, seed)| FileContent { data, seed })
}

fn entry() -> impl Strategy<Value = Entry> {
    let content = prop_oneof![
        4 => Just(Content::Directory),
        7 => file_content().prop_map(Content::File),
        1 => vec(1u8.., 1..30).prop_map(Content::Link),
        2 => any::<Index>().prop_map(Content::HardLink),
        1 => Just(Content::Fifo),
    ];
    (any::<Index>(), name(), content, properties()).prop_map(
        |(parent, name, content, properties)| Entry {
            parent,
            name,
            content,
            properties,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        2 => entry().prop_map(Change::Add),
        1 => any::<Index>().prop_map(Change::Remove),
        3 => (any::<Index>(), any::<Index>(), name())
            .prop_map(|(from, parent, name)| Change::Rename(from, parent, name)),
        2 => (any::<Index>(), file_content(), any::<bool>()).prop_map(
            |(file, content, keeps_inode)| Change::Rewrite {
                file,
                content,
                keeps_inode,
            }
        ),
        3 => (any::<Index>(), properties(), any::<bool>()).prop_map(
            |(path, properties, keeps_time)| Change::Set {
                path,
                properties,
                keeps_time,
            }
        ),
    ]
}

/// Returns any tree, its changes and patterns.
pub fn case() -> impl Strategy<Value = Case> {
    let parts = (vec(entry(), 0..16), vec(change(), 0..8), vec(rule(), 0..4));
    parts.prop_map(|(entries, changes, rules)| Case {
        entries,
        changes,
        rules,
    })
}
