//! Writes the layers of images. The digest of a layer depends only on its entries: not on their order, nor on times or owners
//! in the file system.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use flate2::GzBuilder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

/// Owner of entries that set no other: root.
const ROOT: u32 = 0;

/// Mode of folders that are needed for an entry, but have none of their own.
const FOLDER_MODE: u32 = 0o755;

/// Modification time of every entry, in seconds. Python accepts the `.pyc` files of such a layer only if they are checked by
/// hash, or not at all (`python -m compileall --invalidation-mode unchecked-hash`).
const MODIFIED: u64 = 0;

/// A file, folder or symbolic link of a layer.
#[derive(Clone, Debug)]
pub struct Entry {
    path: PathBuf,
    mode: u32,
    owner: u32,
    content: EntryContent,
}

#[derive(Clone, Debug)]
pub(super) enum EntryContent {
    Folder,
    SymbolicLink(PathBuf),
    Bytes(Vec<u8>),
    /// A file of this machine, read when the layer is written.
    HostFile(PathBuf),
}

impl Entry {
    pub fn folder(path: impl Into<PathBuf>, mode: u32) -> Self {
        Self::new(path.into(), mode, EntryContent::Folder)
    }

    pub fn symbolic_link(path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Self {
        Self::new(path.into(), 0o777, EntryContent::SymbolicLink(target.into()))
    }

    pub fn bytes(path: impl Into<PathBuf>, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(path.into(), mode, EntryContent::Bytes(bytes.into()))
    }

    /// A file of this machine. A link is followed. The mode becomes 0755 if the owner may execute the file, else 0644: the
    /// umask under which the file was written does not enter the layer.
    pub fn host_file(path: impl Into<PathBuf>, file: impl Into<PathBuf>) -> Result<Self> {
        let file = file.into();
        let metadata = fs::metadata(&file).with_context(|| format!("cannot read {}", file.display()))?;
        ensure!(metadata.is_file(), "{} is not a file", file.display());
        let mode = if metadata.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
        Ok(Self::new(path.into(), mode, EntryContent::HostFile(file)))
    }

    /// All entries of a folder of this machine, as a folder `path` of the image. Links stay links.
    #[cfg_attr(not(test), allow(dead_code, reason = "the image of the operator has no folder of this machine"))]
    pub fn host_folder(path: impl Into<PathBuf>, folder: &Path) -> Result<Vec<Self>> {
        let path = path.into();
        let mut entries = vec![Self::folder(&path, FOLDER_MODE)];
        let cannot_read = || format!("cannot read the folder {}", folder.display());
        for found in fs::read_dir(folder).with_context(cannot_read)? {
            let found = found.with_context(cannot_read)?;
            let (host, path) = (found.path(), path.join(found.file_name()));
            let kind = found.file_type().with_context(cannot_read)?;
            if kind.is_dir() {
                entries.extend(Self::host_folder(path, &host)?);
            } else if kind.is_symlink() {
                entries.push(Self::symbolic_link(path, fs::read_link(&host).with_context(cannot_read)?));
            } else {
                entries.push(Self::host_file(path, host)?);
            }
        }
        Ok(entries)
    }

    /// Sets the user and group of the entry, by default root.
    #[cfg_attr(not(test), expect(dead_code, reason = "root owns all files of the image of the operator"))]
    pub fn owned_by(mut self, id: u32) -> Self {
        self.owner = id;
        self
    }

    fn new(path: PathBuf, mode: u32, content: EntryContent) -> Self {
        Self { path, mode, owner: ROOT, content }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn content(&self) -> &EntryContent {
        &self.content
    }

    pub fn is_file(&self) -> bool {
        matches!(self.content, EntryContent::Bytes(_) | EntryContent::HostFile(_))
    }

    fn append<W: Write>(&self, path: &Path, archive: &mut tar::Builder<W>) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(self.mode);
        header.set_uid(self.owner.into());
        header.set_gid(self.owner.into());
        header.set_mtime(MODIFIED);
        header.set_size(0);
        match &self.content {
            EntryContent::Folder => {
                header.set_entry_type(tar::EntryType::Directory);
                archive.append_data(&mut header, path, io::empty())?;
            }
            EntryContent::SymbolicLink(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                archive.append_link(&mut header, path, target)?;
            }
            EntryContent::Bytes(bytes) => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, path, bytes.as_slice())?;
            }
            EntryContent::HostFile(file) => {
                let open = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
                let length = open.metadata()?.len();
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(length);
                let mut reader = CountingReader { inner: open.take(length), read: 0 };
                archive.append_data(&mut header, path, &mut reader)?;
                ensure!(reader.read == length, "{} became shorter while it was read; run this again", file.display());
            }
        }
        Ok(())
    }
}

/// Compression of a layer. Uncompressed layers are faster to write and to import on the same machine; registries get
/// compressed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Uncompressed,
    Gzip,
}

/// A layer in a file.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Digest of the file, such as `sha256:...`.
    pub digest: String,
    /// Digest of the uncompressed content.
    pub diff_id: String,
    /// Size of the file in bytes.
    pub size: u64,
    pub compression: Compression,
    /// Number of regular files in the layer.
    pub files: usize,
    pub path: PathBuf,
}

impl Layer {
    /// Writes a layer to the folder `store`, as a file with the name of its digest. Missing parent folders are added; two
    /// entries for one path are an error. Several images can use the same layer.
    pub fn from_entries(
        entries: impl IntoIterator<Item = Entry>,
        compression: Compression,
        store: &Path,
    ) -> Result<Self> {
        let entries = sorted(entries)?;
        fs::create_dir_all(store).with_context(|| format!("cannot create {}", store.display()))?;
        let temporary = NamedTempFile::new_in(store).with_context(|| format!("cannot write to {}", store.display()))?;
        let blob = HashingWriter::new(BufWriter::with_capacity(1 << 20, temporary));
        let (diff_id, blob) = match compression {
            Compression::Uncompressed => (None, write_archive(&entries, blob)?),
            Compression::Gzip => {
                let archive = write_archive(&entries, HashingWriter::new(gzip(blob)))?;
                (Some(archive.digest()), archive.inner.finish()?)
            }
        };
        let (digest, size) = (blob.digest(), blob.written);
        let temporary = blob.inner.into_inner().map_err(io::IntoInnerError::into_error)?;
        let path = store.join(hex_of(&digest));
        // Temporary files are private.
        temporary.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        temporary.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let files = entries.values().filter(|entry| entry.is_file()).count();
        Ok(Self { diff_id: diff_id.unwrap_or_else(|| digest.clone()), digest, size, compression, files, path })
    }

    pub fn media_type(&self) -> &'static str {
        match self.compression {
            Compression::Uncompressed => "application/vnd.oci.image.layer.v1.tar",
            Compression::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
        }
    }
}

/// Writes an archive with these entries to a file. The same entries give the same bytes.
pub(super) fn write_archive_file(entries: impl IntoIterator<Item = Entry>, path: &Path) -> Result<()> {
    let cannot_write = || format!("cannot write {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(cannot_write)?;
    let temporary = NamedTempFile::new_in(folder).with_context(cannot_write)?;
    let written = write_archive(&sorted(entries)?, BufWriter::with_capacity(1 << 20, temporary))?;
    let temporary = written.into_inner().map_err(io::IntoInnerError::into_error).with_context(cannot_write)?;
    temporary.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    temporary.persist(path).with_context(cannot_write)?;
    Ok(())
}

fn write_archive<W: Write>(entries: &BTreeMap<PathBuf, Entry>, out: W) -> Result<W> {
    let mut archive = tar::Builder::new(out);
    for (path, entry) in entries {
        entry.append(path, &mut archive).with_context(|| format!("cannot write the entry /{}", path.display()))?;
    }
    let mut out = archive.into_inner().context("cannot write the end of the archive")?;
    out.flush()?;
    Ok(out)
}

/// Without a name and a time in the header.
fn gzip<W: Write>(out: W) -> GzEncoder<W> {
    GzBuilder::new().mtime(0).write(out, flate2::Compression::best())
}

/// The entries by their path below the root of the image, with all parent folders.
fn sorted(entries: impl IntoIterator<Item = Entry>) -> Result<BTreeMap<PathBuf, Entry>> {
    let mut sorted = BTreeMap::new();
    for entry in entries {
        let path = relative(&entry.path)?;
        if sorted.contains_key(&path) {
            bail!("the layer has two entries for /{}", path.display());
        }
        sorted.insert(path, entry);
    }
    let paths: Vec<PathBuf> = sorted.keys().cloned().collect();
    for path in paths {
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            let folder = sorted.entry(parent.to_owned()).or_insert_with(|| Entry::folder(parent, FOLDER_MODE));
            ensure!(
                matches!(folder.content, EntryContent::Folder),
                "/{} is below /{}, which is not a folder of the layer",
                path.display(),
                parent.display()
            );
        }
    }
    Ok(sorted)
}

fn relative(path: &Path) -> Result<PathBuf> {
    let mut relative = PathBuf::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => relative.push(name),
            Component::ParentDir | Component::Prefix(_) => bail!("the path {} has a part `..`", path.display()),
        }
    }
    ensure!(!relative.as_os_str().is_empty(), "an entry has no path");
    Ok(relative)
}

/// Digest of bytes, such as `sha256:...`.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    in_hex(Sha256::digest(bytes).as_slice())
}

/// The part of a digest after the name of its algorithm.
pub(super) fn hex_of(digest: &str) -> &str {
    digest.split_once(':').map_or(digest, |(_, hex)| hex)
}

fn in_hex(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

struct HashingWriter<W> {
    inner: W,
    hash: Sha256,
    written: u64,
}

impl<W> HashingWriter<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), written: 0 }
    }

    fn digest(&self) -> String {
        in_hex(self.hash.clone().finalize().as_slice())
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

struct CountingReader<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.read += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn entries() -> Vec<Entry> {
        vec![
            Entry::bytes("/etc/passwd", 0o644, "root:x:0:0::/:\n"),
            Entry::folder("/tmp", 0o1777),
            Entry::symbolic_link("/lib64", "usr/lib64"),
            Entry::bytes("/home/user/file", 0o600, "x").owned_by(65_532),
            // Longer than the 100 bytes of a header.
            Entry::bytes(format!("/{}/name", "folder/".repeat(40)), 0o644, "deep"),
        ]
    }

    fn write(entries: Vec<Entry>, compression: Compression) -> (Layer, Vec<u8>) {
        let store = tempfile::tempdir().unwrap();
        let layer = Layer::from_entries(entries, compression, store.path()).unwrap();
        let bytes = fs::read(&layer.path).unwrap();
        assert_eq!(layer.path, store.path().join(hex_of(&layer.digest)));
        assert_eq!(layer.digest, digest_of(&bytes));
        assert_eq!(layer.size, bytes.len() as u64);
        (layer, bytes)
    }

    #[test]
    fn order_of_entries_does_not_change_digest() {
        for compression in [Compression::Uncompressed, Compression::Gzip] {
            let (first, _) = write(entries(), compression);
            for turn in 0..entries().len() {
                let mut shuffled = entries();
                shuffled.rotate_left(turn);
                shuffled.swap(0, 2);
                let (again, _) = write(shuffled, compression);
                assert_eq!((&again.digest, &again.diff_id), (&first.digest, &first.diff_id));
            }
            let mut other = entries();
            other.pop();
            assert_ne!(write(other, compression).0.digest, first.digest);
        }
    }

    #[test]
    fn compression_keeps_content() {
        let (plain, archive) = write(entries(), Compression::Uncompressed);
        let (zipped, bytes) = write(entries(), Compression::Gzip);
        assert_eq!((&plain.diff_id, &plain.digest), (&zipped.diff_id, &plain.diff_id));
        let mut unzipped = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut unzipped).unwrap();
        assert_eq!(unzipped, archive);
        assert_eq!(bytes[4..8], [0; 4], "the header has no time");
        assert_eq!(plain.media_type(), "application/vnd.oci.image.layer.v1.tar");
        assert_eq!(zipped.media_type(), "application/vnd.oci.image.layer.v1.tar+gzip");
    }

    #[test]
    fn archive_has_fixed_attributes_and_parents() {
        let (layer, bytes) = write(entries(), Compression::Uncompressed);
        let mut found = Vec::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!(header.mtime().unwrap(), MODIFIED);
            assert_eq!((header.username().unwrap(), header.groupname().unwrap()), (Some(""), Some("")));
            let path = entry.path().unwrap().display().to_string();
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            found.push((path, header.mode().unwrap(), header.uid().unwrap(), header.gid().unwrap(), content));
        }
        let row = |path: &str, mode, owner, content: &str| (path.to_owned(), mode, owner, owner, content.to_owned());
        assert_eq!(found[0], row("etc", 0o755, 0, ""));
        assert_eq!(found[1], row("etc/passwd", 0o644, 0, "root:x:0:0::/:\n"));
        assert!(found.contains(&row("home/user", 0o755, 0, "")));
        assert!(found.contains(&row("home/user/file", 0o600, 65_532, "x")));
        assert!(found.contains(&row("tmp", 0o1777, 0, "")));
        assert!(found.iter().any(|(path, ..)| path.len() > 250 && path.ends_with("/name")));
        assert_eq!(layer.files, 3);
    }

    #[test]
    fn files_of_machine_lose_times_and_umask() {
        let digest = |mode: u32, seconds: u64| {
            let folder = tempfile::tempdir().unwrap();
            let below = folder.path().join("a/b");
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join("program"), "#!").unwrap();
            fs::set_permissions(below.join("program"), fs::Permissions::from_mode(mode)).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            File::open(below.join("program")).unwrap().set_modified(time).unwrap();
            std::os::unix::fs::symlink("program", below.join("link")).unwrap();
            write(Entry::host_folder("/opt", folder.path()).unwrap(), Compression::Uncompressed).0.digest
        };
        assert_eq!(digest(0o755, 1_000_000), digest(0o700, 2_000_000));
        assert_ne!(digest(0o755, 1_000_000), digest(0o644, 1_000_000));
    }

    #[test]
    fn conflicting_entries_are_rejected() {
        let store = tempfile::tempdir().unwrap();
        let error = |entries: Vec<Entry>| {
            let written = Layer::from_entries(entries, Compression::Gzip, store.path());
            written.unwrap_err().to_string()
        };
        let file = |path: &str| Entry::bytes(path, 0o644, "");
        assert_eq!(error(vec![file("/a/b"), file("a//b")]), "the layer has two entries for /a/b");
        assert_eq!(
            error(vec![file("/lib/x"), Entry::symbolic_link("/lib", "usr/lib")]),
            "/lib/x is below /lib, which is not a folder of the layer"
        );
        assert!(error(vec![file("/a/../b")]).contains("has a part `..`"));
        assert_eq!(error(vec![file("/")]), "an entry has no path");
        assert!(Entry::host_file("/x", store.path()).unwrap_err().to_string().ends_with("is not a file"));
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0, "nothing is left of a failed layer");
    }
}
