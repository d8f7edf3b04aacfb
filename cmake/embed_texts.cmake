# cmake -DOUT=file.cc -DFILES="a;b" -P embed_texts.cmake: text files as C++ string literals, in order of their names.
# kEmbeddedLayouts of proto/layout_catalog.cc is their one reader.
set(text "// Made by cmake/embed_texts.cmake from docs/layouts.\n#include \"proto/layout_catalog_data.h\"\n\n")
string(APPEND text "namespace cistern {\n\nconst std::vector<EmbeddedText>& EmbeddedLayouts() {\n")
string(APPEND text "  static const std::vector<EmbeddedText> kAll = {\n")
separate_arguments(FILES UNIX_COMMAND "${FILES}")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} body)
  string(APPEND text "      {\"${name}\", R\"=====(${body})=====\"},\n")
endforeach()
string(APPEND text "  };\n  return kAll;\n}\n\n}  // namespace cistern\n")
file(WRITE ${OUT} "${text}")
