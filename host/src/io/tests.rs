use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn load_error(path: &Path, bytes: &[u8]) -> String {
    std::fs::write(path, bytes).unwrap();
    let error = load(path, &Device::cpu()).unwrap_err();
    assert!(matches!(error, Error::Format { .. }), "{error}");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text.replace(&path.display().to_string(), "FILE")
}

/// A file with this header and `data` bytes of data.
fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn tensors_and_notes_come_back() {
    let (folder, cpu) = (folder(), Device::cpu());
    let path = folder.path().join("a.safetensors");
    let x = Tensor::from_slice(&cpu, &[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, f32::NEG_INFINITY]).unwrap();
    let keep = Tensor::from_slice(&cpu, &[2], &[true, false]).unwrap();
    let empty = Tensor::from_slice::<u64>(&cpu, &[4, 0], &[]).unwrap();
    let columns = x.transpose(0, 1).unwrap();
    let notes = BTreeMap::from([("op".to_owned(), "softmax".to_owned())]);
    save(&path, [("x", &x), ("columns", &columns), ("keep", &keep), ("empty", &empty)], &notes).unwrap();

    let (tensors, read) = load_with_metadata(&path, &cpu).unwrap();
    assert_eq!(read, notes);
    assert_eq!(tensors.keys().collect::<Vec<_>>(), ["columns", "empty", "keep", "x"]);
    assert_eq!(tensors["columns"].shape(), [3, 2]);
    assert_eq!(tensors["columns"].to_vec::<f32>().unwrap(), [1.0, 4.0, 2.0, 5.0, 3.0, f32::NEG_INFINITY]);
    assert_eq!(tensors["keep"].to_vec::<bool>().unwrap(), [true, false]);
    assert_eq!((tensors["empty"].shape(), tensors["empty"].dtype()), (&[4, 0][..], DType::U64));

    // Saving what was loaded gives the same file, in place of the old one, and leaves nothing else.
    let before = std::fs::read(&path).unwrap();
    save(&path, &tensors, &notes).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn every_dtype_survives_a_file() {
    let (folder, cpu) = (folder(), Device::cpu());
    let path = folder.path().join("a.safetensors");
    for dtype in DType::ALL {
        let bytes: Vec<u8> = (0..3 * dtype.size()).map(|i| (i % 2) as u8).collect();
        let tensor = Tensor::from_bytes(&cpu, dtype, &[3], &bytes).unwrap();
        let saved = save(&path, [("x", &tensor)], &BTreeMap::new());
        if let DType::C64 | DType::C128 = dtype {
            assert_eq!(
                saved.unwrap_err().to_string(),
                format!(
                    "save: `tensor` must have dtype of a file, for `x` one of F32, F16, BF16, F64, BOOL, U8, I8, F8_E4M3, F8_E5M2, \
                     F8_E8M0, I16, U16, I32, U32, I64, U64, got {dtype}"
                )
            );
            continue;
        }
        saved.unwrap();
        let loaded = &load(&path, &cpu).unwrap()["x"];
        assert_eq!((loaded.dtype(), loaded.to_bytes().unwrap()), (dtype, bytes));
    }
}

#[test]
fn broken_files_are_refused_in_one_line() {
    let folder = folder();
    let path = folder.path().join("a.safetensors");
    let start = "FILE: not a safetensors file that can be read: ";
    assert_eq!(load_error(&path, b""), format!("{start}header too small"));
    assert_eq!(load_error(&path, &[0xff; 64]), format!("{start}header too large"));
    assert!(load_error(&path, &raw("not json", 0)).starts_with(start));
    let header = r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    std::fs::write(&path, raw(header, 8)).unwrap();
    assert_eq!(load(&path, &Device::cpu()).unwrap()["x"].to_vec::<f32>().unwrap(), [0.0; 2]);
    let said = |bytes: &[u8], want: &str| assert_eq!(load_error(&path, bytes), format!("{start}{want}"));
    said(&raw(header, 7), "tensor `x` is bytes 0..8 of the data, which has 7");
    said(&raw(header, 9), "bytes 8..9 of the data are of no tensor");
    said(&raw(&header.replace("0,8", "1,9"), 9), "bytes 0..1 of the data are of no tensor");
    said(&raw(&header.replace("0,8", "8,0"), 8), "tensor `x` is bytes 8..0 of the data, which has 8");
    said(
        &raw(&header.replace("0,8", "0,7"), 7),
        "tensor `x` of shape [2] and type F32 must have 8 bytes, got 7",
    );
    let two = |second: &str, offsets: &str| {
        let second = format!(r#","{second}":{{"dtype":"U8","shape":[8],"data_offsets":[{offsets}]}}}}"#);
        format!("{}{second}", &header[..header.len() - 1])
    };
    said(&raw(&two("x", "8,16"), 16), "tensor `x` is there twice");
    said(&raw(&two("x", "0,8"), 8), "tensor `x` is there twice");
    said(&raw(&two("a", "0,8"), 8), "tensors `a` and `x` share bytes of the data");
    said(&raw(&two("y", "4,12"), 12), "tensors `x` and `y` share bytes of the data");
    said(&raw(&two("y", "10,18"), 18), "bytes 8..10 of the data are of no tensor");
    std::fs::write(&path, raw(&two("y", "8,16"), 16)).unwrap();
    assert_eq!(load(&path, &Device::cpu()).unwrap().len(), 2);
    for end in 0..raw(header, 8).len() {
        load_error(&path, &raw(header, 8)[..end]);
    }
    said(
        &raw(&header.replace("[2]", "[3]"), 8),
        "tensor `x` of shape [3] and type F32 must have 12 bytes, got 8",
    );
    said(
        &raw(&header.replace("[2]", "[4294967296,4294967296,4294967296]"), 8),
        "tensor `x` has a shape that is too large: [4294967296, 4294967296, 4294967296]",
    );
    // The parser counts up to the 0.
    said(
        &raw(r#"{"x":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}"#, 0),
        "tensor `x` has a shape that is too large: [4294967296, 4294967296, 0]",
    );
}

#[test]
fn headers_that_describe_no_tensors_say_of_which() {
    let folder = folder();
    let path = folder.path().join("a.safetensors");
    for (header, want) in [
        ("[1,2]", "the header must be an object with the tensors by name, got [1,2]".to_owned()),
        (
            r#"{"x":7}"#,
            "tensor `x` must be an object with `dtype`, `shape` and `data_offsets`, got 7".to_owned(),
        ),
        (
            r#"{"x":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}"#,
            format!("tensor `x` has {}", unknown("\"F33\"")),
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
            "tensor `x` must have a `shape` of numbers from 0 on, got [-1]".to_owned(),
        ),
        (
            r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,0.5]}}"#,
            "tensor `x` must have `data_offsets` of two numbers from 0 on, got [0,0.5]".to_owned(),
        ),
        (
            r#"{"x":{"dtype":"F32","data_offsets":[0,4]}}"#,
            "tensor `x` must have a `shape` of numbers from 0 on, got nothing".to_owned(),
        ),
    ] {
        let said = load_error(&path, &raw(header, 4));
        assert_eq!(said, format!("FILE: not a safetensors file that can be read: {want}"));
    }
    let long = format!(r#"{{"x":{{"dtype":"F32","shape":"{}","data_offsets":[0,4]}}}}"#, "é".repeat(1000));
    let said = load_error(&path, &raw(&long, 4));
    assert!(said.ends_with("é…") && said.len() < 300, "{said}");
}

#[test]
fn what_is_not_supported_is_named() {
    let folder = folder();
    let path = folder.path().join("a.safetensors");
    let header = r#"{"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}"#;
    assert_eq!(
        load_error(&path, &raw(header, 1)),
        "FILE: not a safetensors file that can be read: tensor `x` has dtype F4, not one of F32, F16, BF16, F64, \
         BOOL, U8, I8, F8_E4M3, F8_E5M2, F8_E8M0, I16, U16, I32, U32, I64, U64"
    );
    let header =
        r#"{"x":{"dtype":"U8","shape":[0,4611686018427387904,4611686018427387904],"data_offsets":[0,0]}}"#;
    let error = load_error(&path, &raw(header, 0));
    assert!(error.contains("tensor `x` has a shape that is too large: [0, 4611686018427387904"), "{error}");
    let header = r#"{"x":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}"#;
    assert_eq!(
        load_error(&path, &raw(header, 1)),
        "FILE: not a safetensors file that can be read: tensor `x` has 9 dimensions, of at most 8"
    );
}

#[test]
fn files_that_cannot_be_opened_say_why() {
    let folder = folder();
    let path = folder.path().join("missing/a.safetensors");
    let text = |error: Error| error.to_string().replace(&path.display().to_string(), "FILE");
    assert_eq!(
        text(load(&path, &Device::cpu()).unwrap_err()),
        "FILE: cannot read: No such file or directory (os error 2)"
    );
    let none = BTreeMap::<String, Tensor>::new();
    let error = text(save(&path, &none, &BTreeMap::new()).unwrap_err());
    assert!(error.starts_with("FILE: cannot write: No such file or directory"), "{error}");
    // A folder in the place of the file: nothing is left behind.
    assert!(matches!(save(folder.path(), &none, &BTreeMap::new()).unwrap_err(), Error::Io { .. }));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn saved_files_have_the_usual_rights() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let (saved, plain) = (folder.path().join("a"), folder.path().join("b"));
    save(&saved, &BTreeMap::<String, Tensor>::new(), &BTreeMap::new()).unwrap();
    std::fs::write(&plain, b"").unwrap();
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&saved), mode(&plain));
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_what_is_no_file_is_refused() {
    use std::os::unix::net::UnixListener;
    let folder = folder();
    let [link, file, socket] = ["link", "file", "socket"].map(|name| folder.path().join(name));
    std::fs::write(&file, b"before").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let none = BTreeMap::<String, Tensor>::new();
    save(&link, &none, &BTreeMap::new()).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(load(&file, &Device::cpu()).unwrap().is_empty());
    write(&link, "after").unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"after");

    std::fs::remove_file(&file).unwrap();
    write(&link, "anew").unwrap();
    assert_eq!(std::fs::read(&file).unwrap(), b"anew");

    let _listener = UnixListener::bind(&socket).unwrap();
    for result in [save(&socket, &none, &BTreeMap::new()), write(&socket, ""), destination(&socket).map(drop)]
    {
        let text = result.unwrap_err().to_string();
        assert!(text.ends_with("socket: cannot write: what is there is not a file"), "{text}");
    }
    assert!(!socket.metadata().unwrap().is_file());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left behind");
}
