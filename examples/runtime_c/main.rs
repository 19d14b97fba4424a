//! The same in Rust, without crates: classify MODEL INPUT EXPECTED.  It declares what it uses of dlc_runtime.h.
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::{env, fs, process, ptr, slice};

#[repr(C)]
struct Tensor {
    name: *const c_char,
    dtype: *const c_char,
    item_size: usize,
    ndim: c_int,
    shape: *const i64,
    dims: *const *const c_char,
}

#[repr(C)]
struct Model {
    _private: [u8; 0],
}

#[repr(C)]
struct Session {
    _private: [u8; 0],
}

#[link(name = "dlc_runtime", kind = "static")]
extern "C" {
    fn dlc_error() -> *const c_char;
    fn dlc_open(path: *const c_char) -> *mut Model;
    fn dlc_close(model: *mut Model);
    fn dlc_input(model: *const Model, function: c_int, index: c_int) -> *const Tensor;
    fn dlc_output(model: *const Model, function: c_int, index: c_int) -> *const Tensor;
    fn dlc_session_new(model: *mut Model, function: *const c_char) -> *mut Session;
    fn dlc_session_free(session: *mut Session);
    fn dlc_set_input(
        s: *mut Session,
        index: c_int,
        data: *const c_void,
        shape: *const i64,
        ndim: c_int,
    ) -> c_int;
    fn dlc_run(session: *mut Session, threads: c_int) -> c_int;
    fn dlc_get_output(
        session: *const Session,
        index: c_int,
        shape: *mut *const i64,
    ) -> *const c_void;
}

/// A model with one session, both freed at the end.
struct Classifier {
    model: *mut Model,
    session: *mut Session,
}

fn last_error() -> String {
    unsafe { CStr::from_ptr(dlc_error()) }
        .to_string_lossy()
        .into_owned()
}

impl Classifier {
    fn open(path: &str) -> Result<Classifier, String> {
        let name = CString::new(path).map_err(|error| error.to_string())?;
        unsafe {
            let model = dlc_open(name.as_ptr());
            if model.is_null() {
                return Err(last_error());
            }
            let session = dlc_session_new(model, ptr::null());
            let made = Classifier { model, session };
            if session.is_null() {
                Err(last_error())
            } else {
                Ok(made)
            }
        }
    }

    fn input_shape(&self) -> Result<Vec<i64>, String> {
        unsafe {
            let tensor = dlc_input(self.model, 0, 0)
                .as_ref()
                .ok_or_else(last_error)?;
            Ok(slice::from_raw_parts(tensor.shape, tensor.ndim as usize).to_vec())
        }
    }

    fn run(&mut self, pixels: &[f32], shape: &[i64]) -> Result<Vec<f32>, String> {
        unsafe {
            let data = pixels.as_ptr().cast();
            if dlc_set_input(self.session, 0, data, shape.as_ptr(), shape.len() as c_int) != 0
                || dlc_run(self.session, 0) != 0
            {
                return Err(last_error());
            }
            let mut sizes = ptr::null();
            let scores = dlc_get_output(self.session, 0, &mut sizes).cast::<f32>();
            let ndim = (*dlc_output(self.model, 0, 0)).ndim as usize;
            let count: i64 = slice::from_raw_parts(sizes, ndim).iter().product();
            Ok(slice::from_raw_parts(scores, count as usize).to_vec())
        }
    }
}

impl Drop for Classifier {
    fn drop(&mut self) {
        unsafe {
            dlc_session_free(self.session);
            dlc_close(self.model);
        }
    }
}

fn read_floats(path: &str) -> Result<Vec<f32>, String> {
    let bytes = fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(bytes
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect())
}

fn classify(words: &[String]) -> Result<bool, String> {
    let [_, path, input, output] = words else {
        return Err("usage: classify MODEL INPUT EXPECTED".into());
    };
    let mut classifier = Classifier::open(path)?;
    let shape = classifier.input_shape()?;
    let scores = classifier.run(&read_floats(input)?, &shape)?;
    let expected = read_floats(output)?;
    let error = scores
        .iter()
        .zip(&expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    let best = (0..scores.len())
        .max_by(|&a, &b| scores[a].total_cmp(&scores[b]))
        .unwrap_or(0);
    println!(
        "class {best}, score {:.6}, largest difference {error}",
        scores[best]
    );
    Ok(error < 1e-5 && scores.len() == expected.len())
}

fn main() {
    match classify(&env::args().collect::<Vec<_>>()) {
        Ok(fits) => process::exit(if fits { 0 } else { 1 }),
        Err(problem) => {
            eprintln!("{problem}");
            process::exit(1)
        }
    }
}
