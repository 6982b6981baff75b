//! The requests of a connection. Paths must be UTF-8.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use openssh_sftp_client_lowlevel::{
    CreateFlags, Data, FileAttrs, NameEntry, OpenFileRequest, OpenOptions,
};

use super::{Handle, Name, Session};
use crate::entries::{Attributes, mode_attrs};
use crate::error::{RequestError, Status};

impl Session {
    /// Opens a file to read it.
    pub(crate) async fn open_to_read(&self, path: &Path) -> Result<Handle, RequestError> {
        self.open(OpenOptions::new().read(true).open(Cow::Borrowed(path)))
            .await
    }

    /// Opens an existing file to write it.
    pub(crate) async fn open_to_write(&self, path: &Path) -> Result<Handle, RequestError> {
        self.open(OpenOptions::new().write(true).open(Cow::Borrowed(path)))
            .await
    }

    /// Creates a file that does not exist, for its owner alone.
    pub(crate) async fn create(&self, path: &Path) -> Result<Handle, RequestError> {
        let attrs = mode_attrs(0o600);
        let options = OpenOptions::new().write(true);
        self.open(options.create(Cow::Borrowed(path), CreateFlags::Excl, attrs))
            .await
    }

    async fn open(&self, request: OpenFileRequest<'_>) -> Result<Handle, RequestError> {
        self.ask(|requests, id| Ok(requests.send_open_file_request(id, request)?.wait()))
            .await
            .map(Arc::new)
    }

    /// Closes a file or directory.
    pub(crate) async fn close(&self, handle: &Handle) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_close_request(id, Cow::Borrowed(handle))?
                .wait())
        })
        .await
    }

    /// Reads at most `len` bytes. Empty at the end of the file.
    pub(crate) async fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: u32,
    ) -> Result<Box<[u8]>, RequestError> {
        let data = self
            .ask(|requests, id| {
                let handle = Cow::Borrowed(&***handle);
                Ok(requests
                    .send_read_request(id, handle, offset, len, None)?
                    .wait())
            })
            .await;
        match data {
            Ok(Data::AllocatedBox(data)) if data.len() <= len as usize => Ok(data),
            Ok(Data::Eof) => Ok(Box::default()),
            Ok(_) => Err(RequestError::Refused(
                Status::Invalid,
                "it sent more than was requested".into(),
            )),
            Err(error) => Err(error),
        }
    }

    /// Writes.
    pub(crate) async fn write(
        &self,
        handle: &Handle,
        offset: u64,
        data: Bytes,
    ) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            let handle = Cow::Borrowed(&***handle);
            Ok(requests
                .send_write_request_zero_copy(id, handle, offset, &[data])?
                .wait())
        })
        .await
    }

    /// Describes an open file.
    pub(crate) async fn describe_open(&self, handle: &Handle) -> Result<Attributes, RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_fstat_request(id, Cow::Borrowed(handle))?
                .wait())
        })
        .await
        .map(Attributes::from)
    }

    /// Describes an entry, and the target of a link.
    pub(crate) async fn describe(&self, path: &Path) -> Result<Attributes, RequestError> {
        self.ask(|requests, id| Ok(requests.send_stat_request(id, Cow::Borrowed(path))?.wait()))
            .await
            .map(Attributes::from)
    }

    /// Describes an entry, and a link itself.
    pub(crate) async fn describe_entry(&self, path: &Path) -> Result<Attributes, RequestError> {
        self.ask(|requests, id| Ok(requests.send_lstat_request(id, Cow::Borrowed(path))?.wait()))
            .await
            .map(Attributes::from)
    }

    /// Sets attributes of an open file.
    pub(crate) async fn set_open(
        &self,
        handle: &Handle,
        attrs: FileAttrs,
    ) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_fsetstat_request(id, Cow::Borrowed(handle), attrs)?
                .wait())
        })
        .await
    }

    /// Sets attributes of an entry.
    pub(crate) async fn set(&self, path: &Path, attrs: FileAttrs) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_setstat_request(id, Cow::Borrowed(path), attrs)?
                .wait())
        })
        .await
    }

    /// Makes an open file durable. Only if [`ServerAbilities::fsync`].
    pub(crate) async fn sync(&self, handle: &Handle) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_fsync_request(id, Cow::Borrowed(handle))?
                .wait())
        })
        .await
    }

    /// Renames a file, and replaces nothing.
    pub(crate) async fn rename(&self, from: &Path, to: &Path) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_rename_request(id, Cow::Borrowed(from), Cow::Borrowed(to))?
                .wait())
        })
        .await
    }

    /// Renames a file over another. Only if [`ServerAbilities::posix_rename`].
    pub(crate) async fn replace(&self, from: &Path, to: &Path) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_posix_rename_request(id, Cow::Borrowed(from), Cow::Borrowed(to))?
                .wait())
        })
        .await
    }

    /// Removes a file or link.
    pub(crate) async fn remove(&self, path: &Path) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_remove_request(id, Cow::Borrowed(path))?
                .wait())
        })
        .await
    }

    /// Removes an empty directory.
    pub(crate) async fn remove_dir(&self, path: &Path) -> Result<(), RequestError> {
        self.ask(|requests, id| Ok(requests.send_rmdir_request(id, Cow::Borrowed(path))?.wait()))
            .await
    }

    /// Creates a directory.
    pub(crate) async fn make_dir(&self, path: &Path, mode: u32) -> Result<(), RequestError> {
        let attrs = mode_attrs(mode);
        self.ask(|requests, id| {
            Ok(requests
                .send_mkdir_request(id, Cow::Borrowed(path), attrs)?
                .wait())
        })
        .await
    }

    /// Creates a symbolic link.
    pub(crate) async fn make_link(&self, link: &Path, target: &Path) -> Result<(), RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_symlink_request(id, Cow::Borrowed(target), Cow::Borrowed(link))?
                .wait())
        })
        .await
    }

    /// Returns the target of a symbolic link.
    pub(crate) async fn read_link(&self, path: &Path) -> Result<Box<Path>, RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_readlink_request(id, Cow::Borrowed(path))?
                .wait())
        })
        .await
    }

    /// Returns the absolute path without links.
    pub(crate) async fn real_path(&self, path: &Path) -> Result<Box<Path>, RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_realpath_request(id, Cow::Borrowed(path))?
                .wait())
        })
        .await
    }

    /// Opens a directory to list it.
    pub(crate) async fn open_dir(&self, path: &Path) -> Result<Handle, RequestError> {
        self.ask(|requests, id| {
            Ok(requests
                .send_opendir_request(id, Cow::Borrowed(path))?
                .wait())
        })
        .await
        .map(Arc::new)
    }

    /// Returns the next names of a directory. Empty at its end.
    pub(crate) async fn next_names(&self, handle: &Handle) -> Result<Vec<Name>, RequestError> {
        let names = self
            .ask(|requests, id| {
                Ok(requests
                    .send_readdir_request(id, Cow::Borrowed(handle))?
                    .wait())
            })
            .await;
        let name = |entry: &NameEntry| Name {
            name: entry.filename.as_os_str().as_encoded_bytes().to_vec(),
            attributes: entry.attrs.into(),
        };
        names.map(|names| names.iter().map(name).collect())
    }
}
