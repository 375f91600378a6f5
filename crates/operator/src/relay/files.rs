//! Reads the files of the profiler's folder.
//!
//! Links are not followed: a link to the account's token would publish the token in a ConfigMap.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use steersman_plan::dynamo::graph::{EARLIER, FINAL, PARETO};

use crate::relay::status::{self, Status, Verdict};

/// Most bytes of all values of a ConfigMap together, as the API server counts them.
pub const LIMIT: usize = 1024 * 1024;

const RESULTS: [&str; 4] = [FINAL, EARLIER[0], EARLIER[1], PARETO];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FileContent {
    #[default]
    Absent,
    /// Problem, worded to follow the name of the file.
    Unusable(String),
    /// Number of bytes, more than a ConfigMap can hold.
    TooLarge(u64),
    Read(String),
}

impl FileContent {
    /// The problem, worded to follow the name of the file.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Absent | Self::Read(_) => None,
            Self::Unusable(why) => Some(why.clone()),
            Self::TooLarge(bytes) => {
                Some(format!("has {bytes} bytes, more than the {LIMIT} that a ConfigMap can hold"))
            }
        }
    }

    pub fn read(&self) -> Option<&str> {
        if let Self::Read(text) = self { Some(text) } else { None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    pub status: FileContent,
    /// Read only once the profiler reports success.
    pub results: BTreeMap<&'static str, FileContent>,
}

impl Files {
    pub fn status(&self) -> Option<Status> {
        self.status.read().and_then(status::read)
    }

    pub fn has_verdict(&self) -> bool {
        self.status().is_some_and(|status| !matches!(status.verdict, Verdict::None(_)))
    }
}

pub fn read_folder(folder: &Path) -> Files {
    let mut files = Files { status: text(&folder.join(status::FILE)), ..Files::default() };
    if files.status().is_some_and(|status| status.verdict == Verdict::Success) {
        files.results = RESULTS.into_iter().map(|name| (name, text(&folder.join(name)))).collect();
    }
    files
}

fn text(path: &Path) -> FileContent {
    let opened = OpenOptions::new().read(true).custom_flags(flags()).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return FileContent::Absent,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
            return FileContent::Unusable("is a link".to_owned());
        }
        Err(error) => return FileContent::Unusable(format!("cannot be read: {error}")),
    };
    let size = match file.metadata() {
        Ok(about) if !about.is_file() => return FileContent::Unusable("is not a file".to_owned()),
        Ok(about) => about.len(),
        Err(error) => return FileContent::Unusable(format!("cannot be read: {error}")),
    };
    bounded(file, size)
}

/// Links are not followed, and the open of a pipe without a writer does not block.
fn flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

fn bounded(file: File, size: u64) -> FileContent {
    let mut bytes = Vec::new();
    let most = u64::try_from(LIMIT).unwrap_or(u64::MAX);
    match file.take(most + 1).read_to_end(&mut bytes) {
        Err(error) => FileContent::Unusable(format!("cannot be read: {error}")),
        Ok(_) if bytes.len() > LIMIT => FileContent::TooLarge(size.max(most + 1)),
        Ok(_) => match String::from_utf8(bytes) {
            Ok(text) => FileContent::Read(text),
            Err(_) => FileContent::Unusable("is not text in UTF-8".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        folder
    }

    #[test]
    fn results_are_read_after_success() {
        let early = folder(&[("profiler_status.yaml", b"status: running"), (FINAL, b"a: 1")]);
        assert_eq!(read_folder(early.path()).results, BTreeMap::new());
        let done = folder(&[("profiler_status.yaml", b"status: success"), (FINAL, b"a: 1"), ("other", b"x")]);
        let files = read_folder(done.path());
        assert_eq!(files.results[FINAL], FileContent::Read("a: 1".into()));
        assert_eq!((files.results.len(), &files.results[PARETO]), (4, &FileContent::Absent));
        assert_eq!(read_folder(Path::new("/nowhere")), Files::default());
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let outside = folder(&[("token", b"status: success")]);
        let inside = folder(&[]);
        let path = inside.path().join("profiler_status.yaml");
        symlink(outside.path().join("token"), &path).unwrap();
        assert_eq!(read_folder(inside.path()).status, FileContent::Unusable("is a link".into()));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(read_folder(inside.path()).status, FileContent::Unusable("is not a file".into()));
        fs::remove_dir(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(read_folder(inside.path()).status, FileContent::Unusable("is not a file".into()));
    }

    #[test]
    fn file_beyond_config_map_limit_is_unusable() {
        let folder = folder(&[("profiler_status.yaml", b"status: success"), (FINAL, b"a\xffb")]);
        let path = folder.path().join(EARLIER[0]);
        File::create(&path).unwrap().set_len(3 << 30).unwrap();
        fs::write(folder.path().join(EARLIER[1]), vec![b'x'; LIMIT]).unwrap();
        let results = read_folder(folder.path()).results;
        assert_eq!(results[FINAL], FileContent::Unusable("is not text in UTF-8".into()));
        assert_eq!(results[EARLIER[0]], FileContent::TooLarge(3 << 30));
        assert_eq!(results[EARLIER[1]].read().map(str::len), Some(LIMIT), "exactly as much as fits is read");
    }
}
