//! Arrays of numbers, of any number of dimensions.
//!
//! ```text
//! ext | length of the type u8 | type, such as "f8" | dimensions u8 | each u64 | elements in C order, little endian |
//! ```
//!
//! * AR-1: whatever bytes come, reading gives an array whose elements are as many as its shape says, or an error.

use serde::de::{self, Deserializer, Visitor};
use serde::ser::{self, Serializer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The ext type of arrays.
pub const EXT: i8 = 1;

/// What errors about arrays say.
pub(crate) const ARRAY: &str = "array of numbers";

/// More dimensions than this are refused; numpy has no more either.
pub const MOST_DIMENSIONS: usize = 64;

/// The types that elements have, by numpy's short names.
pub const TYPES: [&str; 11] = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"];

/// An array of numbers with a shape: what a numpy array is in Rust. Its elements lie in C order, the last index fastest.
///
/// ```
/// use paceline::Array;
/// let table = Array::new(vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
/// assert_eq!(table.shape(), [2, 3]);
/// assert_eq!(table.data()[3], 4.0); // row 1, column 0
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Array<T> {
    shape: Vec<usize>,
    data: Vec<T>,
}

impl<T> Array<T> {
    /// None if there are not as many elements as the shape says, or if it has more than 64 dimensions.
    pub fn new(shape: Vec<usize>, data: Vec<T>) -> Option<Array<T>> {
        let count = shape.iter().try_fold(1_usize, |product, each| product.checked_mul(*each))?;
        (count == data.len() && shape.len() <= MOST_DIMENSIONS).then_some(Array { shape, data })
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub fn data(&self) -> &[T] {
        &self.data
    }

    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// Its shape and its elements.
    pub fn into_parts(self) -> (Vec<usize>, Vec<T>) {
        (self.shape, self.data)
    }
}

/// One dimension.
impl<T> From<Vec<T>> for Array<T> {
    fn from(data: Vec<T>) -> Array<T> {
        Array { shape: vec![data.len()], data }
    }
}

/// A number that arrays can have.
pub trait Element: Sized + private::Sealed {
    /// What numpy calls it.
    const TYPE: &'static str;
    #[doc(hidden)]
    fn write(elements: &[Self], out: &mut Vec<u8>);
    /// `bytes` are as many as elements need.
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Vec<Self>;
}

mod private {
    pub trait Sealed {}
}

fn bytes_of<T: IntoBytes + Immutable>(elements: &[T]) -> &[u8] {
    elements.as_bytes()
}

fn read_plain<T: FromBytes + IntoBytes>(mut zeros: Vec<T>, bytes: &[u8]) -> Vec<T> {
    zeros.as_mut_slice().as_mut_bytes().copy_from_slice(bytes);
    zeros
}

macro_rules! elements {
    ($($type:ty = $name:literal),+ $(,)?) => {$(
        impl private::Sealed for $type {}

        impl Element for $type {
            const TYPE: &'static str = $name;

            fn write(elements: &[$type], out: &mut Vec<u8>) {
                if cfg!(target_endian = "little") {
                    out.extend_from_slice(bytes_of(elements));
                } else {
                    elements.iter().for_each(|element| out.extend_from_slice(&element.to_le_bytes()));
                }
            }

            fn read(bytes: &[u8]) -> Vec<$type> {
                if cfg!(target_endian = "little") {
                    return read_plain(vec![<$type>::default(); bytes.len() / size_of::<$type>()], bytes);
                }
                let (chunks, _) = bytes.as_chunks();
                chunks.iter().map(|chunk| <$type>::from_le_bytes(*chunk)).collect()
            }
        }
    )+};
}

elements! {
    i8 = "i1", i16 = "i2", i32 = "i4", i64 = "i8", u8 = "u1", u16 = "u2", u32 = "u4", u64 = "u8", f32 = "f4", f64 = "f8",
}

impl private::Sealed for bool {}

impl Element for bool {
    const TYPE: &'static str = "b1";

    fn write(elements: &[bool], out: &mut Vec<u8>) {
        out.extend_from_slice(bytes_of(elements));
    }

    fn read(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|byte| *byte != 0).collect()
    }
}

/// Append what comes before the elements.
pub fn write_header(kind: &str, shape: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
    out.push(kind.len() as u8);
    out.extend_from_slice(kind.as_bytes());
    out.push(shape.len() as u8);
    shape.for_each(|each| out.extend_from_slice(&each.to_le_bytes()));
}

/// An array as it came: its type, its shape, and bytes that are as many as both say (AR-1).
pub struct Parts<'a> {
    pub kind: &'a str,
    pub shape: Vec<usize>,
    pub bytes: &'a [u8],
}

impl<'a> Parts<'a> {
    pub fn read(body: &'a [u8]) -> Option<Parts<'a>> {
        let (&length, rest) = body.split_first()?;
        let (kind, rest) = rest.split_at_checked(length.into())?;
        let kind = std::str::from_utf8(kind).ok().filter(|kind| TYPES.contains(kind))?;
        let width: usize = kind[1..].parse().ok()?;
        let (&dimensions, mut rest) = rest.split_first()?;
        let mut shape = Vec::with_capacity(dimensions.into());
        let mut size = width;
        for _ in 0..dimensions {
            let (each, after) = rest.split_first_chunk::<8>()?;
            let each = usize::try_from(u64::from_le_bytes(*each)).ok()?;
            size = size.checked_mul(each)?;
            shape.push(each);
            rest = after;
        }
        let sane = size == rest.len() && shape.len() <= MOST_DIMENSIONS;
        sane.then_some(Parts { kind, shape, bytes: rest })
    }
}

impl<T: Element> Serialize for Array<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = Vec::with_capacity(16 + 8 * self.shape.len() + size_of_val(self.data.as_slice()));
        write_header(T::TYPE, self.shape.iter().map(|each| *each as u64), &mut body);
        T::write(&self.data, &mut body);
        if u32::try_from(body.len()).is_err() {
            return Err(ser::Error::custom("an array of more than 4 GiB cannot travel"));
        }
        let ext = (EXT, serde_bytes::Bytes::new(&body));
        serializer.serialize_newtype_struct(rmp_serde::MSGPACK_EXT_STRUCT_NAME, &ext)
    }
}

impl<'de, T: Element> Deserialize<'de> for Array<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Array<T>, D::Error> {
        deserializer.deserialize_newtype_struct(rmp_serde::MSGPACK_EXT_STRUCT_NAME, Ext(PhantomData))
    }
}

struct Ext<T>(PhantomData<T>);

impl<'de, T: Element> Visitor<'de> for Ext<T> {
    type Value = Array<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an {ARRAY} ({})", T::TYPE)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Array<T>, D::Error> {
        let (tag, Body(array)) = <(i8, Body<T>)>::deserialize(deserializer)?;
        if tag == EXT { Ok(array) } else { Err(de::Error::custom(format_args!("an ext of type {tag}"))) }
    }
}

struct Body<T>(Array<T>);

impl<'de, T: Element> Deserialize<'de> for Body<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Body<T>, D::Error> {
        deserializer.deserialize_bytes(BodyVisitor(PhantomData))
    }
}

struct BodyVisitor<T>(PhantomData<T>);

impl<T: Element> Visitor<'_> for BodyVisitor<T> {
    type Value = Body<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an {ARRAY} ({})", T::TYPE)
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Body<T>, E> {
        let parts = Parts::read(bytes).ok_or_else(|| E::custom(format_args!("a malformed {ARRAY}")))?;
        if parts.kind != T::TYPE {
            return Err(E::custom(format_args!("an {ARRAY} of type {}, expected {}", parts.kind, T::TYPE)));
        }
        Array::new(parts.shape, T::read(parts.bytes))
            .map(Body)
            .ok_or_else(|| E::custom(format_args!("a malformed {ARRAY}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip<T: Element>(array: &Array<T>) -> Array<T> {
        rmp_serde::from_slice(&rmp_serde::to_vec_named(array).unwrap()).unwrap()
    }

    #[test]
    fn arrays_survive() {
        let table = Array::new(vec![2, 2], vec![1.5, -0.0, f64::MAX, 4.0]).unwrap();
        assert_eq!(trip(&table), table);
        let none = Array::<i16>::new(vec![0, 3], vec![]).unwrap();
        assert_eq!(trip(&none), none);
        let number = Array::new(vec![], vec![true]).unwrap();
        assert_eq!(trip(&number), number);
        assert_eq!(Array::new(vec![3], vec![1u8]), None);
        assert_eq!(Array::new(vec![usize::MAX, 2], vec![1u8]), None);
    }

    #[test]
    fn golden_bytes() {
        let bytes = rmp_serde::to_vec_named(&Array::from(vec![1u16, 2])).unwrap();
        let body = [2, b'u', b'2', 1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0];
        assert_eq!(bytes, [&[0xd8, 1][..], &body].concat());
    }

    #[test]
    fn another_type_is_named_and_lies_are_refused() {
        let bytes = rmp_serde::to_vec_named(&Array::from(vec![1f32])).unwrap();
        let error = rmp_serde::from_slice::<Array<f64>>(&bytes).unwrap_err().to_string();
        assert_eq!(error, "an array of numbers of type f4, expected f8");
        let good = [2, b'u', b'2', 1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0];
        assert!(Parts::read(&good).is_some());
        for cut in 0..good.len() {
            assert!(Parts::read(&good[..cut]).is_none(), "AR-1: {cut}");
        }
        let huge = [&[2, b'u', b'8', 2][..], &[0xff; 16]].concat();
        assert!(Parts::read(&huge).is_none(), "AR-1");
    }
}
