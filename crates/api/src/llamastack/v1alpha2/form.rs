//! Fields that can be written in more than one form: as an object, or shorter.

/// Implements `Deserialize` and `JsonSchema` for such a field, given the object, the methods of the visitor for the shorter
/// form, and the schema made from that of the object. The schema has no type, because a structural schema cannot have two; its
/// keywords apply to the form that is used.
macro_rules! form {
    ($form:ident, $expected:literal, $object:ty => $of_object:expr, { $($shorter:tt)+ }, |$full:ident| $schema:tt) => {
        impl<'de> serde::Deserialize<'de> for $form {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct FormVisitor;

                impl<'de> serde::de::Visitor<'de> for FormVisitor {
                    type Value = $form;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$form, A::Error> {
                        let map = serde::de::value::MapAccessDeserializer::new(map);
                        <$object as serde::Deserialize>::deserialize(map).map($of_object)
                    }

                    $($shorter)+
                }

                deserializer.deserialize_any(FormVisitor)
            }
        }

        impl schemars::JsonSchema for $form {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($form).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let $full = <$object as schemars::JsonSchema>::json_schema(generator);
                schemars::json_schema!($schema)
            }
        }
    };
}

pub(super) use form;
