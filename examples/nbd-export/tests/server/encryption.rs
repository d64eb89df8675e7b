//! Encrypted exports: what is in the file, and whose key it is.

use crate::{SIZE, Server, engines, refused, write_key};
use nbd_export::proto;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;

/// The size of what the file has before the data.
const HEADER: u64 = 4096;

#[test]
fn an_encrypted_file_holds_nothing_that_can_be_read() {
    for engine in engines() {
        let server = Server::start(engine, "disk=disk,key=key", &["--scope", "system"]);
        let mut client = server.connect().go("disk");
        let plain = vec![b'p'; 64 << 10];
        assert_eq!(client.write(4096, &plain, 0), 0);
        assert_eq!(client.read_at(4096, 64 << 10), plain);
        assert_eq!(client.read_at(SIZE - HEADER - 512, 512).len(), 512);
        assert_eq!(client.write(4097, &[0; 512], 0), proto::Errno::Inval as u32);
        let mut found = vec![0; 64 << 10];
        let disk = File::open(server.path("disk")).unwrap();
        disk.read_exact_at(&mut found, HEADER + 4096).unwrap();
        assert!(found.chunks(16).all(|unit| unit != &plain[..16]));
        // Zeros that were asked for read as zeros, and are none in the file.
        client.send(6, 0, 4096, 4096, &[]);
        assert_eq!(client.error(), 0);
        assert_eq!(client.read_at(4096, 4096), vec![0; 4096]);
        disk.read_exact_at(&mut found[..4096], HEADER + 4096)
            .unwrap();
        assert!(found[..4096] != vec![0; 4096]);
        server.stop();
    }
}

/// A file that was encrypted by a server that has ended, with the server's folder.
fn encrypted(key: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_key(&folder.path().join("own"), key);
    let server = Server::start_in(folder, "auto", "disk=disk,key=own", &[]);
    let mut client = server.connect().go("disk");
    assert_eq!(client.write(0, &[7; 4096], proto::flag::FUA), 0);
    server.stop_and_keep()
}

/// What the server says when it is to serve a file of the folder by a key.
fn refused_in(folder: &Path, file: &str, key: &str, more: &str) -> String {
    let in_folder = |name: &str| folder.join(name).display().to_string();
    let export = format!("disk={},key={}{more}", in_folder(file), in_folder(key));
    refused(&format!(
        "--export {export} --unix {}",
        in_folder("never.sock")
    ))
}

/// With another key all that is read would be noise, and all that is written.
#[test]
fn a_wrong_key_is_noticed() {
    let key: Vec<u8> = (0..64).collect();
    for (own, other) in [
        (&key[..], &[&key[1..], b"x"].concat()[..]),
        (
            b"correct horse battery staple\n",
            b"correct horse battery stable\n",
        ),
    ] {
        let folder = encrypted(own);
        let before = fs::read(folder.path().join("disk")).unwrap();
        write_key(&folder.path().join("other"), other);
        let said = refused_in(folder.path(), "disk", "other", "");
        assert!(said.contains("another key"), "{said}");
        assert!(fs::read(folder.path().join("disk")).unwrap() == before);
    }
}

/// The key is of the file, whatever the file and the export are called.
#[test]
fn a_file_that_is_renamed_keeps_its_key() {
    let folder = encrypted(&(0..64).collect::<Vec<u8>>());
    fs::copy(folder.path().join("disk"), folder.path().join("moved")).unwrap();
    let more = ["--export", "name=moved,key=own"];
    let server = Server::start_in(folder, "auto", "disk=disk,ro", &more);
    let mut client = server.connect().go("name");
    assert_eq!(client.read_at(0, 4096), [7; 4096]);
    server.stop();
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = encrypted(&(0..64).collect::<Vec<u8>>());
    let key = folder.path().join("own");
    for mode in [0o640, 0o604, 0o622] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let said = refused_in(folder.path(), "disk", "own", "");
        assert!(said.contains("chmod 600"), "{said}");
    }
}

/// What is there is not taken for noise and overwritten.
#[test]
fn a_file_that_holds_something_else_is_not_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    write_key(&folder.path().join("own"), b"correct horse battery staple");
    for at in [0, 1000, 4095] {
        let mut content = vec![0; 1 << 20];
        content[at] = 1;
        fs::write(folder.path().join("plain"), &content).unwrap();
        let said = refused_in(folder.path(), "plain", "own", "");
        assert!(said.contains("not encrypted by this program"), "{said}");
        assert!(fs::read(folder.path().join("plain")).unwrap() == content);
    }
    let empty = vec![0; 1 << 20];
    fs::write(folder.path().join("plain"), &empty).unwrap();
    let said = refused_in(folder.path(), "plain", "own", ",ro");
    assert!(said.contains("without ro"), "{said}");
    assert!(fs::read(folder.path().join("plain")).unwrap() == empty);
}

/// The first page may be zero, and data behind it.
#[test]
fn a_file_with_data_behind_a_page_of_zeros_is_encrypted_only_if_it_is_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let key = b"correct horse battery staple";
    write_key(&folder.path().join("own"), key);
    let path = folder.path().join("disk");
    for at in [4096, 600_000, (1 << 20) + 4095] {
        let file = File::create(&path).unwrap();
        file.set_len((1 << 20) + 4096).unwrap();
        file.write_all_at(&[1], at).unwrap();
        let before = fs::read(&path).unwrap();
        let said = refused_in(folder.path(), "disk", "own", "");
        assert!(said.contains("not encrypted by this program"), "{said}");
        assert!(said.contains("format"), "{said}");
        let said = refused_in(folder.path(), "disk", "own", ",ro,format");
        assert!(said.contains("without ro"), "{said}");
        assert!(fs::read(&path).unwrap() == before);
    }
    let server = Server::start_in(folder, "auto", "disk=disk,key=own,format", &[]);
    let mut client = server.connect().go("disk");
    assert_eq!(client.write(0, &[7; 4096], proto::flag::FUA), 0);
    let folder = server.stop_and_keep();
    let before = fs::read(folder.path().join("disk")).unwrap();
    let said = refused_in(folder.path(), "disk", "own", ",format");
    assert!(said.contains("leave format out"), "{said}");
    assert!(fs::read(folder.path().join("disk")).unwrap() == before);
    let server = Server::start_in(folder, "auto", "disk=disk,key=own", &[]);
    let mut client = server.connect().go("disk");
    assert_eq!(client.read_at(0, 4096), [7; 4096]);
    server.stop();
}

/// Zeros have to be encrypted, which takes as long as a write.
#[test]
fn an_encrypted_export_has_no_fast_zeros() {
    let server = Server::start("auto", "disk=disk,key=key", &["--export", "plain=big"]);
    for (name, is_fast) in [("disk", false), ("plain", true)] {
        let mut client = server.connect();
        let flags = client.flags_of(name);
        assert_eq!(flags & proto::transmission::SEND_FAST_ZERO != 0, is_fast);
        let mut client = client.go(name);
        assert_eq!(client.write(0, &[7; 4096], 0), 0);
        client.send(6, proto::flag::FAST_ZERO, 0, 4096, &[]);
        let refused = if is_fast {
            0
        } else {
            // It was not offered.
            proto::Errno::Inval as u32
        };
        assert_eq!(client.error(), refused);
        let left = if is_fast { 0 } else { 7 };
        assert_eq!(client.read_at(0, 4096), [left; 4096]);
    }
    server.stop();
}

/// A client that chooses by `EXPORT_NAME` is not told of block sizes, and cannot be refused by an
/// answer. With a plain export it learns the size.
#[test]
fn an_encrypted_export_is_not_for_clients_that_cannot_learn_its_block_size() {
    let server = Server::start("auto", "disk=disk,key=key", &["--export", "plain=big"]);
    let mut client = server.connect();
    client.option(proto::option::EXPORT_NAME, b"disk");
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, []);
    let mut client = server.connect();
    client.option(proto::option::EXPORT_NAME, b"plain");
    assert_eq!(client.read(8), (64_u64 << 20).to_be_bytes());
    client.read(2);
    assert_eq!(client.write(0, b"fine", 0), 0);
    let said = server.stop();
    assert!(said.contains("block size"), "{said}");
}

/// Whoever forgets the key in a command line must not write over what the file holds.
#[test]
fn an_encrypted_file_is_not_served_without_its_key() {
    let folder = encrypted(&(0..64).collect::<Vec<u8>>());
    let [disk, socket] = ["disk", "never.sock"].map(|name| folder.path().join(name));
    let (disk, socket) = (disk.display(), socket.display());
    let said = refused(&format!("--export disk={disk} --unix {socket}"));
    assert!(said.contains("is encrypted: give key=KEYFILE"), "{said}");
    let server = Server::start_in(folder, "auto", "disk=disk,ro", &[]);
    assert_eq!(server.connect().go("disk").read_at(0, 512).len(), 512);
    server.stop();
}

/// What can be wrong is found before anything is written.
#[test]
fn nothing_is_encrypted_by_a_server_that_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    write_key(&folder.path().join("own"), &(0..64).collect::<Vec<u8>>());
    let content = vec![7; 1 << 20];
    fs::write(folder.path().join("disk"), &content).unwrap();
    let export = format!("--export disk={},key={},format", at("disk"), at("own"));
    for more in [
        format!("--unix {}", at("nowhere/sock")),
        format!("--unix {} --export b={}", at("sock"), at("missing")),
        format!("--unix {} --metrics bad", at("sock")),
        format!("--unix {} --export disk={}", at("sock"), at("own")),
    ] {
        refused(&format!("{export} {more}"));
        let now = fs::read(folder.path().join("disk")).unwrap();
        assert!(now == content, "{more}");
    }
}

/// Two exports of one file would each know nothing of what the other writes.
#[test]
fn a_file_is_exported_once() {
    let folder = encrypted(&(0..64).collect::<Vec<u8>>());
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (disk, own, socket) = (at("disk"), at("own"), at("never.sock"));
    let twice = format!("--export a={disk},key={own} --export b={disk},ro --unix {socket}");
    let said = refused(&twice);
    assert!(said.contains("already exported"), "{said}");
    let server = Server::start_in(folder, "auto", "disk=disk,key=own", &[]);
    let _client = server.connect().go("disk");
    let said = refused(&format!("--export a={disk},ro --unix {socket}"));
    assert!(said.contains("already exported"), "{said}");
    server.stop();
}

/// What a key file is taken for is told, and can be said: then it is another key, or none.
#[test]
fn the_log_says_what_a_key_file_is_taken_for() {
    let digits = "0123456789abcdef".repeat(7) + "fedcba9876543210";
    let bytes: Vec<u8> = (100..164).collect();
    let text = "x".repeat(64);
    let started = |folder, option: &str| {
        let export = format!("disk=disk,{option}=own");
        let server = Server::start_in(folder, "auto", &export, &[]);
        (server.connect().go("disk"), server)
    };
    for (option, content, taken_for, otherwise) in [
        ("key", &bytes[..], "a key of 64 bytes", Some("must be text")),
        (
            "key",
            digits.as_bytes(),
            "a key of 128 hexadecimal digits",
            Some("another key"),
        ),
        ("key", text.as_bytes(), "a passphrase", None),
        (
            "passphrase",
            digits.as_bytes(),
            "a passphrase",
            Some("another key"),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write_key(&folder.path().join("own"), content);
        let (mut client, server) = started(folder, option);
        assert_eq!(client.write(0, &[7; 4096], proto::flag::FUA), 0);
        let folder = server.stop_and_keep();
        let other = ["key", "passphrase"].into_iter().find(|&it| it != option);
        let other = other.unwrap();
        let right = match otherwise {
            None => other,
            Some(why) => {
                let at = |name: &str| folder.path().join(name).display().to_string();
                let export = format!("disk={},{other}={}", at("disk"), at("own"));
                let said = refused(&format!("--export {export} --unix {}", at("never.sock")));
                assert!(said.contains(why), "{said}");
                option
            }
        };
        let (mut client, server) = started(folder, right);
        assert_eq!(client.read_at(0, 4096), [7; 4096]);
        let said = server.stop();
        let line = format!("disk: what own holds is {taken_for}\n");
        assert!(said.contains(&line), "{line}: {said}");
    }
}

/// With two equal halves XTS hides less than it promises.
#[test]
fn a_key_of_two_equal_halves_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk"), vec![0; 1 << 20]).unwrap();
    for key in [(100..132).collect::<Vec<u8>>().repeat(2), b"0f".repeat(64)] {
        write_key(&folder.path().join("own"), &key);
        let said = refused_in(folder.path(), "disk", "own", "");
        assert!(
            said.contains("/own: the two halves of the key are equal"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
